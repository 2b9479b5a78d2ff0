"""The stage before a grid's cells: every search by BM25, so that no GPU waits for Lucene."""

from collections.abc import Sequence

import polars as pl

from baselines import systems
from baselines.cells.cell import Cell
from baselines.systems.bm25 import tuned
from baselines.training.queries import passage_texts
from eval_kit.search import bm25, candidates
from eval_kit.search.candidates import Settings
from eval_kit.search.processes import pool


def find(grid: Sequence[Cell]) -> None:
    """Search every query that an unfinished cell gives to BM25, to re-rank or for a BM25 run, once for all cells.

    It happens in a separate process, so that the JVM's memory is freed before the cells begin.

    Raises:
        UserError: no passages, no Java, no validation queries to tune BM25 on, or the disk is full.
    """
    left = [cell.portable() for cell in grid if _by_bm25(cell) and not cell.finished]
    if left:
        with pool(1) as process:
            process.submit(_find, left).result()


def _by_bm25(cell: Cell) -> bool:
    own = systems.base(cell.name.system) == "bm25" and not cell.options.get("rm3", False)
    return own or "candidates" in cell.options


def _find(grid: Sequence[Cell]) -> None:
    by_settings: dict[Settings, dict[str, pl.DataFrame]] = {}
    index = systems.shared_index(grid[0]) / candidates.BM25
    bm25.link_once(grid[0].release, index, passage_texts(grid[0]).key)
    for cell in grid:
        options = {**cell.options, **(tuned(cell) if cell.options.get("tune", False) else {})}
        named = {name: options[name] for name in ("k1", "b") if name in options}
        depth = options.get("candidates", options["depth"])
        shifts = by_settings.setdefault(Settings(depth, **named), {})
        if cell.name.shift not in shifts:
            shifts[cell.name.shift] = pl.concat(cell.searches().values())
    for settings, queries in by_settings.items():
        candidates.find(pl.concat(queries.values()), index, settings)
