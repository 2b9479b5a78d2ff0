"""The stage before a grid's cells: every search by BM25, so that no GPU waits for Lucene."""

from collections.abc import Sequence

import polars as pl

from baselines import systems
from baselines.cell import Cell
from baselines.options import Bm25, Monobert
from baselines.systems.bm25 import tuned_parameters
from baselines.training.queries import passage_texts
from eval_kit.search import bm25, candidates
from eval_kit.search.candidates import Settings
from eval_kit.search.processes import pool


def find(grid: Sequence[Cell]) -> None:
    """Search every query that an unfinished cell gives to BM25, to re-rank or for a BM25 run, once for all cells.

    It happens in a separate process, so that the JVM's memory is freed before the cells begin.
    """
    unfinished_cells = [
        cell.portable() for cell in grid if isinstance(cell.options, Bm25 | Monobert) and not cell.is_finished
    ]
    if unfinished_cells:
        with pool(1) as process:
            process.submit(_find, unfinished_cells).result()


def _find(grid: Sequence[Cell]) -> None:
    by_settings: dict[Settings, dict[str, pl.DataFrame]] = {}
    index = systems.shared_index(grid[0]) / candidates.BM25
    bm25.link_once(grid[0].release, index, passage_texts(grid[0]).key)
    for cell in grid:
        options = cell.options
        assert isinstance(options, Bm25 | Monobert)
        parameters = tuned_parameters(cell) if options.tune else {"k1": options.k1, "b": options.b}
        depth = options.candidates if isinstance(options, Monobert) else options.depth
        shifts = by_settings.setdefault(Settings(depth, **parameters), {})
        if cell.name.shift not in shifts:
            shifts[cell.name.shift] = pl.concat(cell.searches().values())
    for settings, queries in by_settings.items():
        candidates.find(pl.concat(queries.values()), index, settings)
