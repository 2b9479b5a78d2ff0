"""All of BM25's searches before the cells of a grid that re-ranks."""

import shutil
from pathlib import Path

import pytest

from baselines import systems
from baselines.grid.grid import cells
from baselines.runners import candidates
from eval_kit.release import Release
from search import bm25
from search.cache import cache_folder


@pytest.mark.slow
def test_bm25s_cells_read_their_runs_from_what_was_found_for_re_rankers(mini_release: Release, tmp_path: Path):
    options = {"bm25": {"depth": 7}, "monobert": {"depth": 7, "candidates": 5}}
    grid = cells(options, mini_release, tmp_path, ["length"], benchmarks=False)
    candidates.find([cell for cell in grid if cell.name.system == "bm25"])
    assert not list(tmp_path.iterdir())  # nothing re-ranks
    candidates.find(grid)
    index, made = systems.shared_index(grid[0]) / "bm25", bm25.index_of(mini_release, cache_folder())
    assert all(file.samefile(index / "plain" / file.name) for file in made.iterdir())  # indexed once
    queries = grid[0].test_queries()
    expected = {query: sorted(hits) for query, hits in bm25.search(queries.rows(), index / "plain", 7)}
    shutil.rmtree(index / "plain")
    for cell in grid:
        if cell.name.system == "bm25":
            hits = systems.system("bm25").retriever(cell.model, cell.options).search(queries, index, 7)
            assert {query: sorted(own) for query, own in hits} == expected
