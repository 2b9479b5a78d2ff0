"""BM25's candidates: found once, kept, read in any order, and the same however they came to be."""

import errno
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.files.cache import cache_folder
from eval_kit.models.bm25 import Bm25
from eval_kit.release import Release
from eval_kit.search import bm25, candidates
from eval_kit.search.candidates import Settings
from eval_kit.search.retriever import best_first
from tests.tiny_checkpoints import passages, texts

TWELVE = Settings(depth=12, k1=0.8)
QUERIES = pl.DataFrame(
    {"query_id": [f"q{n}" for n in range(25)] + ["none"], "text": [*texts(25, 1, 6), "zzz"]}, strict=True
)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("candidates")
    bm25.index_once(iter(passages(80)), folder / "index", key="80 passages")
    return folder


@pytest.fixture
def folder(indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(candidates, "SHARD", 10)
    shutil.copytree(indexed, tmp_path / "grid")
    return tmp_path / "grid" / "index"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.parent.glob("candidates/*/*.parquet"))}


def test_they_are_what_bm25_ranks_whether_they_were_kept_or_not(folder: Path):
    expected = dict(bm25.search(QUERIES.iter_rows(), folder / "plain", 12, k1=0.8))
    assert expected["none"] == []
    assert dict(candidates.of(QUERIES, folder, TWELVE)) == expected
    assert not contents(folder)
    candidates.find(QUERIES[:14], folder, TWELVE)
    shuffled = QUERIES.sample(fraction=1, shuffle=True, seed=1)
    assert list(candidates.of(shuffled, folder, TWELVE)) == [(one, expected[one]) for one in shuffled["query_id"]]
    candidates.find(QUERIES, folder, TWELVE)
    shutil.rmtree(folder / "plain")  # kept ones need no index
    assert list(candidates.of(QUERIES, folder, TWELVE)) == list(expected.items())
    run = dict(Bm25(k1=TWELVE.k1).search(QUERIES, folder, TWELVE.depth))
    assert run == {query: best_first(hits) for query, hits in expected.items()}


def test_other_settings_other_texts_and_other_passages_have_their_own(folder: Path):
    candidates.find(QUERIES, folder, TWELVE)
    assert {len(hits) for _, hits in candidates.of(QUERIES, folder, Settings(depth=5, k1=0.8))} <= {0, 1, 2, 3, 4, 5}
    swapped = QUERIES.with_columns(pl.col("text").reverse())
    [first, *_] = candidates.of(swapped, folder, TWELVE)
    assert first == ("q0", [])
    bm25.index_once(passages(60), folder, key="60 passages")
    assert all(int(one[1:]) < 60 for _, hits in candidates.of(QUERIES, folder, TWELVE) for one, _ in hits)


def test_two_wordings_of_a_query_in_one_search_have_their_own(folder: Path):
    worded = QUERIES[:8].with_columns(pl.col("text").reverse())
    candidates.find(pl.concat([QUERIES[:8], worded]), folder, TWELVE)
    shutil.rmtree(folder / "plain")
    assert [hits for _, hits in candidates.of(worded, folder, TWELVE)] == [
        hits for _, hits in reversed(list(candidates.of(QUERIES[:8], folder, TWELVE)))
    ]


def test_a_search_that_was_stopped_goes_on_to_the_same_files(folder: Path):
    candidates.find(QUERIES, folder, TWELVE)
    whole = contents(folder)
    assert len(whole) == 3
    first, _, last = sorted(folder.parent.glob("candidates/*/*.parquet"))
    before = first.stat().st_mtime_ns
    last.unlink()
    candidates.find(QUERIES, folder, TWELVE)
    assert contents(folder) == whole
    assert first.stat().st_mtime_ns == before


def test_a_damaged_index_and_damaged_candidates_are_made_again(folder: Path, mini_release: Release):
    candidates.find(QUERIES, folder, TWELVE)
    whole, expected = contents(folder), list(candidates.of(QUERIES, folder, TWELVE))
    path = next(folder.parent.glob("candidates/*/00001.*"))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.warns(match="is damaged"):
        candidates.find(QUERIES, folder, TWELVE)
    assert len(contents(folder)) == len(whole) and list(candidates.of(QUERIES, folder, TWELVE)) == expected
    largest = max((folder / "plain").iterdir(), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-50])
    with pytest.warns(match="The BM25 index .* is damaged"):
        bm25.index_once(iter(passages(80)), folder, key="80 passages")
    assert list(bm25.search(QUERIES.iter_rows(), folder / "plain", 12, k1=0.8)) == expected
    cached = bm25.index_of(mini_release, cache_folder())
    (cached / largest.name).unlink()
    with pytest.warns(match="damaged"):
        bm25.link_once(mini_release, folder.parent, key="mini")
    assert (cached / largest.name).exists()


def test_without_an_index_there_are_none(tmp_path: Path):
    with pytest.raises(UserError, match="no finished BM25 index"):
        candidates.find(QUERIES, tmp_path, TWELVE)
    assert not list(tmp_path.iterdir())


def test_an_index_of_the_cache_is_copied_where_a_link_is_impossible(
    mini_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    bm25.link_once(mini_release, tmp_path, key="mini")
    made = bm25.index_of(mini_release, cache_folder())
    assert {file.name for file in made.iterdir()} == {file.name for file in (tmp_path / "plain").iterdir()}
    assert not any(file.samefile(tmp_path / "plain" / file.name) for file in made.iterdir())
    pairs = mini_release.table("length", "test").select("query_id", "text").rows()
    assert list(bm25.search(pairs, tmp_path / "plain", 5)) == list(bm25.search(pairs, made, 5))
    assert bm25.key_of(tmp_path) == "mini"
