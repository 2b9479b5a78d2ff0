"""A lite release: which passages it keeps, that all else is as before, and that its figures say what they are."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from huggingface_hub import DatasetCard

from builder import lite
from builder.cli import app
from builder.verify import verify
from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.papers.beside import PapersBeside
from eval_kit.protocols.grid_results import Protocols
from eval_kit.protocols.scoring import score
from eval_kit.release import NAME, Release, open_release
from eval_kit.search import bm25
from eval_kit.search.passages import passages
from tests.schemas import validate
from tests.tiny_checkpoints import tiny

DEPTH = 2


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With BM25's index of mini."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def made(mini_release: Release, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    return make(mini_release, tmp_path_factory.mktemp("lite") / NAME, cache)


def make(release: Release, out: Path, cache: Path, size: int = 1, **options: Any) -> Release:
    lite.make(release, out, size=size, depth=DEPTH, cache=cache, **options)
    return open_release(out)


def ids(release: Release) -> set[str]:
    return set(release.table("passages", "passages")["passage_id"])


def test_judged_passages_bm25s_best_and_a_sample_up_to_the_size(
    mini_release: Release, made: Release, cache: Path, tmp_path: Path
):
    judged = pl.concat(mini_release.qrels(split)["passage_id"] for split in mini_release.configs["qrels"])
    index = bm25.index_of(mini_release, cache)
    queries = pl.concat(mini_release.queries(name) for name in mini_release.test_sets).unique("query_id")
    best = {passage for _, hits in bm25.search(queries.rows(), index, DEPTH) for passage, _ in hits}
    assert ids(made) == {*judged, *best}
    size = len(ids(made)) + 100
    larger = ids(make(mini_release, tmp_path / NAME, cache, size=size))
    assert ids(made) < larger < ids(mini_release) and len(larger) == size


def test_queries_and_judgements_are_those_of_the_whole_release(mini_release: Release, made: Release):
    whole, part = ({table.key: table.digest for table in each.manifest.tables} for each in (mini_release, made))
    assert {key for key in whole.keys() | part.keys() if whole.get(key) != part.get(key)} == {("passages", "passages")}
    assert list(made.test_sets) == list(mini_release.test_sets)
    for name, test_set in made.test_sets.items():
        assert test_set.queries.equals(mini_release.test_sets[name].queries)
    assert not any(check.fault for check in verify(made.folder))


def test_the_manifest_and_every_figure_say_what_it_is(mini_release: Release, made: Release, tmp_path: Path):
    """A part of the collection, of BM25's pool alone."""
    described = DatasetCard.load(made.folder / "README.md").data
    assert (described.language, described.license) == ("zxx", "apache-2.0")  # those of mini
    [table] = [table for table in made.manifest.tables if table.config == "passages"]
    assert table.rule.parameters | {"k1": 0, "b": 0} == {
        "size": 1, "depth": DEPTH, "seed": 13, "rankers": ["bm25"], "release": mini_release.digest, "k1": 0, "b": 0,
    }  # fmt: skip
    assert made.manifest.remarks[-1].startswith(f"lite: {len(ids(made)):,} passages")
    run = tmp_path / "x.trec"
    queries = made.test_sets["dl19"].queries
    run.write_text("".join(f"{query} Q0 {passage} 1 1 x\n" for query in queries for passage in sorted(ids(made))[:1]))
    scores = score([run], made)
    assert scores.provenance["release"]["kind"] == "lite"
    nothing = pl.DataFrame()
    scored = Protocols(nothing, {}, {}, {}, {}, nothing, scores.provenance, {})
    shown = PapersBeside(scored, None, made)
    assert shown.comparable == "lite, a part of the collection: not comparable with the published figures"
    synthetic, caution = made.cautions
    assert "synthetic" in synthetic and caution == made.manifest.remarks[-2]
    assert caution.startswith("pool of bm25: ")
    assert caution in scores.all_notes()
    validate("scores", scores.as_json())


def test_some_queries_of_each_test_set_are_kept_with_their_passages(
    mini_release: Release, made: Release, cache: Path, tmp_path: Path
):
    options = {"queries": 5, "shifts": ["topic", "dl19"]}
    release = make(mini_release, tmp_path / "small", cache, **options)
    assert release.digest == make(mini_release, tmp_path / "again", cache, **options).digest
    assert not any(check.fault for check in verify(release.folder))
    assert list(release.test_sets) == [*(f"topic.c{part}" for part in range(5)), "dl19"]
    assert not any("train" in splits for splits in release.configs.values())
    kept = {query for test_set in release.test_sets.values() for query in test_set.queries}
    for name, test_set in release.test_sets.items():
        assert test_set.query_ids == kept & mini_release.test_sets[name].query_ids
        assert len(test_set.query_ids) == 5
        of_test_set = pl.col("query_id").is_in(test_set.queries.implode())
        judgements = release.qrels(test_set.qrels).filter(of_test_set)
        assert judgements.equals(mini_release.qrels(test_set.qrels).filter(of_test_set))
        assert set(judgements["passage_id"]) <= ids(release)
    assert len(ids(release)) < len(ids(made))
    assert "5 queries of each test set" in release.manifest.remarks[-1]


def test_the_best_of_other_rankers_are_kept_too(mini_release: Release, made: Release, cache: Path, tmp_path: Path):
    """Of the test queries, by score and then by id, whatever the ranks in the file; two files may be of one system."""
    left_out = sorted(ids(mini_release) - ids(made))
    runs = []
    for test_set in ("dl19", "dl20"):
        runs.append(tmp_path / f"other.{test_set}.trec")
        queries = [*mini_release.test_sets[test_set].queries]
        lines = [f"{query} Q0 {left_out[n]} {n + 1} {n // 2} x" for query in queries for n in range(5)]
        lines += [f"nobody Q0 {left_out[9]} 1 9 x"] if test_set == "dl19" else []
        runs[-1].write_text("\n".join(lines) + "\n")
    release = make(mini_release, tmp_path / NAME, cache, rankers=runs)
    assert ids(release) - ids(made) == {left_out[4], left_out[3]}
    _, caution = release.cautions  # the first says that mini is synthetic
    assert caution.startswith("pool of bm25, other: ") and caution != made.cautions[1]
    elsewhere = tmp_path / "elsewhere.trec"
    elsewhere.write_text("nobody Q0 1 1 9 x\n")
    with pytest.raises(UserError, match="covers none of the test queries"):
        make(mini_release, tmp_path / "none", cache, rankers=[elsewhere])


def test_by_default_a_dense_encoder_searches_beside_bm25(
    mini_release: Release, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its best are those of its run over all passages."""
    monkeypatch.setattr(lite, "ENCODER", str(tmp_path / "nowhere"))
    options = ["--queries", "5", "--shift", "topic", "--depth", str(DEPTH), "--passages", "1", "--cache", str(cache)]

    def run(out: Path, *more: str) -> Release:
        app(["lite", str(mini_release.folder), *options, "--out", str(out), *more], standalone_mode=False)
        return open_release(out)

    with pytest.raises(UserError, match=r"another encoder with --dense, runs with --pool, or --dense none"):
        run(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    model = tiny("dense")
    release = run(tmp_path / "out", "--dense", str(model))
    _, caution = release.cautions  # the first says that mini is synthetic
    assert caution.startswith("pool of bm25, dense: ")
    assert caution in DatasetCard.load(release.folder / "README.md").content
    queries = pl.concat(release.queries(name) for name in release.test_sets).unique("query_id")
    retriever = Dense(str(model))
    retriever.index(passages(mini_release), tmp_path / "index")
    best = {passage for _, hits in retriever.search(queries, tmp_path / "index", DEPTH) for passage, _ in hits}
    assert best <= ids(release)
    given = tmp_path / "given.trec"
    given.write_text(f"{queries['query_id'][0]} Q0 {min(best)} 1 1 x\n")
    assert run(tmp_path / "given", "--pool", str(given)).cautions[1].startswith("pool of bm25, given: ")
    without = ids(run(tmp_path / "alone", "--dense", "none"))
    assert without < ids(release) == without | best


def test_what_is_refused(mini_release: Release, made: Release, tmp_path: Path):
    with pytest.raises(UserError, match="a lite release"):
        lite.make(made, tmp_path / NAME)
    with pytest.raises(UserError, match="has no test sets of tpoic"):
        lite.make(mini_release, tmp_path / NAME, queries=5, shifts=["topic", "tpoic"])
