"""BM25's candidates: found once, kept, read in any order, and the same however they came to be."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from tiny_checkpoints import passages, texts

from eval_kit.errors import UserError
from search import bm25, candidates
from search.candidates import Settings

TWELVE = Settings(depth=12, k1=0.8)
QUERIES = pl.DataFrame(
    {"query_id": [f"q{n}" for n in range(25)] + ["none"], "text": [*texts(25, 1, 6), "zzz"]}, strict=True
)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("candidates")
    bm25.index_once(iter(passages(80)), folder / "bm25", key="80 passages")
    return folder


@pytest.fixture
def folder(indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(candidates, "SHARD", 10)
    shutil.copytree(indexed, tmp_path / "index")
    return tmp_path / "index"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.glob("candidates/*/*.parquet"))}


def test_they_are_what_bm25_ranks_whether_they_were_kept_or_not(folder: Path):
    ranked = bm25.search(QUERIES.iter_rows(), folder / "bm25" / "plain", 12, k1=0.8)
    expected = {query: [passage for passage, _ in hits] for query, hits in ranked}
    assert expected["none"] == []
    assert dict(candidates.of(QUERIES, folder, TWELVE)) == expected
    assert not contents(folder)
    candidates.find(QUERIES[:14], folder, TWELVE)
    shuffled = QUERIES.sample(fraction=1, shuffle=True, seed=1)
    assert list(candidates.of(shuffled, folder, TWELVE)) == [(one, expected[one]) for one in shuffled["query_id"]]
    candidates.find(QUERIES, folder, TWELVE)
    shutil.rmtree(folder / "bm25" / "plain")  # kept ones need no index
    assert list(candidates.of(QUERIES, folder, TWELVE)) == list(expected.items())


def test_other_settings_other_texts_and_other_passages_have_their_own(folder: Path):
    candidates.find(QUERIES, folder, TWELVE)
    assert {len(ids) for _, ids in candidates.of(QUERIES, folder, Settings(depth=5, k1=0.8))} <= {0, 1, 2, 3, 4, 5}
    swapped = QUERIES.with_columns(pl.col("text").reverse())
    [first, *_] = candidates.of(swapped, folder, TWELVE)
    assert first == ("q0", [])
    bm25.index_once(passages(60), folder / "bm25", key="60 passages")
    assert all(int(one[1:]) < 60 for _, ids in candidates.of(QUERIES, folder, TWELVE) for one in ids)


def test_a_search_that_was_stopped_goes_on_to_the_same_files(folder: Path):
    candidates.find(QUERIES, folder, TWELVE)
    whole = contents(folder)
    assert len(whole) == 3
    last = folder / list(whole)[-1]
    before = (folder / next(iter(whole))).stat().st_mtime_ns
    last.unlink()
    candidates.find(QUERIES, folder, TWELVE)
    assert contents(folder) == whole
    assert (folder / next(iter(whole))).stat().st_mtime_ns == before


def test_without_an_index_there_are_none(tmp_path: Path):
    with pytest.raises(UserError, match="holds no BM25 index, or one that is not finished"):
        candidates.find(QUERIES, tmp_path, TWELVE)
    assert not list(tmp_path.iterdir())
