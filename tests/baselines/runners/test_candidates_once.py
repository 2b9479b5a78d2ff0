"""All of BM25's searches before the cells of a grid."""

import shutil
from pathlib import Path

import pytest

from baselines import systems
from baselines.grid.grid import cells
from baselines.runners import candidates
from eval_kit.release import Release
from eval_kit.search import bm25
from eval_kit.search.cache import cache_folder
from tests.baselines.tiny_cells import tiny_options


@pytest.mark.slow
def test_bm25s_cells_read_their_runs_from_what_was_found_for_re_rankers(mini_release: Release, tmp_path: Path):
    options = {"bm25": tiny_options("bm25", depth=7), "monobert": tiny_options("monobert", depth=7, candidates=5)}
    grid = cells(options, mini_release, tmp_path, ["length"], benchmarks=False)
    rm3 = cells({"bm25": tiny_options("bm25", depth=7, rm3=True)}, mini_release, tmp_path, ["length"], benchmarks=False)
    candidates.find(rm3)
    assert not list(tmp_path.iterdir())  # its index has vectors
    candidates.find([cell for cell in grid if cell.name.system == "bm25"])
    stores = list((tmp_path / "indexes").glob("*/candidates/*"))
    assert len(stores) == 1
    written = {file: file.stat().st_mtime_ns for file in stores[0].glob("*.parquet")}
    candidates.find(grid)
    assert {file: file.stat().st_mtime_ns for file in stores[0].glob("*.parquet")} == written  # searched once
    index, made = systems.shared_index(grid[0]) / "bm25", bm25.index_of(mini_release, cache_folder())
    assert all(file.samefile(index / "plain" / file.name) for file in made.iterdir())  # indexed once
    queries = grid[0].test_queries()
    expected = {query: sorted(hits) for query, hits in bm25.search(queries.rows(), index / "plain", 7)}
    shutil.rmtree(index / "plain")
    for cell in grid:
        if cell.name.system == "bm25":
            hits = systems.system("bm25").retriever(cell.model, cell.options.as_json()).search(queries, index, 7)
            assert {query: sorted(own) for query, own in hits} == expected
