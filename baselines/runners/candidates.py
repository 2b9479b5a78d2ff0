"""The stage before a grid's cells: BM25's candidates for all that re-rank, so that no GPU waits for Lucene."""

from collections.abc import Sequence

import polars as pl

from baselines import systems
from baselines.grid.cell import Cell
from baselines.systems.bm25 import tuned
from baselines.training.queries import passage_texts
from eval_kit.console import counted
from search import bm25, candidates
from search.candidates import Settings
from search.processes import pool


def find(grid: Sequence[Cell]) -> None:
    """Find the candidates of every query of the cells that re-rank and are not finished, once for all of them.

    A process of its own does it, whose Java machine gives back its memory before the cells begin.

    Raises:
        UserError: no passages, no Java, no validation queries to tune BM25 on, or the disk is full.
    """
    left = [cell.portable() for cell in grid if "candidates" in cell.options and not cell.finished]
    if left:
        with pool(1) as process:
            process.submit(_find, left).result()


def _find(grid: Sequence[Cell]) -> None:
    by_settings: dict[Settings, dict[str, pl.DataFrame]] = {}
    folder, texts = systems.shared_index(grid[0]), passage_texts(grid[0])
    bm25.index_once(counted(texts, "indexing passages", "passages"), folder / candidates.BM25, key=texts.key)
    for cell in grid:
        options = {**cell.options, **(tuned(cell) if cell.options.get("tune", False) else {})}
        named = {name: options[name] for name in ("k1", "b") if name in options}
        shifts = by_settings.setdefault(Settings(options["candidates"], **named), {})
        if cell.name.shift not in shifts:
            shifts[cell.name.shift] = pl.concat(cell.searches().values())
    for settings, queries in by_settings.items():
        candidates.find(pl.concat(queries.values()), folder, settings)
