"""A lite release: which passages it keeps, that all else is as before, and that its figures say what they are."""

from pathlib import Path

import polars as pl
import pytest

from baselines.table import Results
from builder import lite
from builder.release import NAME
from builder.verify import verify
from eval_kit.errors import UserError
from eval_kit.measures.score import score
from eval_kit.protocols.grid_results import Protocols
from eval_kit.release import Release, open_release
from search import bm25

DEPTH = 2


@pytest.fixture(scope="module")
def made(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("lite")
    lite.make(mini_release, folder / NAME, size=1, depth=DEPTH, cache=folder / "cache")
    return open_release(folder / NAME)


@pytest.fixture(scope="module")
def larger(mini_release: Release, made: Release) -> Release:
    size = made.table("passages", "passages").height + 100
    out = made.folder.with_name("larger")
    lite.make(mini_release, out, size=size, depth=DEPTH, cache=made.folder.parent / "cache")
    return open_release(out)


def ids(release: Release) -> set[str]:
    return set(release.table("passages", "passages")["passage_id"])


def test_judged_passages_and_bm25s_best_are_kept_and_no_others(mini_release: Release, made: Release):
    judged = {one for split in mini_release.configs["qrels"] for one in mini_release.qrels(split)["passage_id"]}
    index = bm25.index_of(mini_release, made.folder.parent / "cache")
    queries: dict[str, str] = {}
    for test_set in mini_release.test_sets:
        queries |= dict(mini_release.queries(test_set).select("query_id", "text").rows())
    best = {passage for _, hits in bm25.search(queries.items(), index, DEPTH) for passage, _ in hits}
    assert ids(made) == judged | best
    assert ids(made) < ids(mini_release)


def test_others_are_drawn_up_to_the_size(made: Release, larger: Release):
    assert ids(made) < ids(larger)
    assert len(ids(larger)) == len(ids(made)) + 100


def test_queries_and_judgements_are_those_of_the_whole_release(mini_release: Release, made: Release):
    known = {(table["config"], table["split"]): table["digest"] for table in mini_release.manifest["tables"]}
    own = {(table["config"], table["split"]): table["digest"] for table in made.manifest["tables"]}
    assert {key: digest for key, digest in own.items() if key != ("passages", "passages")} == {
        key: digest for key, digest in known.items() if key != ("passages", "passages")
    }
    assert {name: test_set.queries.to_list() for name, test_set in made.test_sets.items()} == {
        name: test_set.queries.to_list() for name, test_set in mini_release.test_sets.items()
    }
    assert not any(check.fault for check in verify(made.folder))


def test_the_manifest_and_every_figure_say_that_it_is_lite(mini_release: Release, made: Release, tmp_path: Path):
    [table] = [table for table in made.manifest["tables"] if table["config"] == "passages"]
    assert table["rule"]["parameters"] | {"k1": 0, "b": 0} == {
        "size": 1, "depth": DEPTH, "seed": 13, "release": mini_release.digest, "k1": 0, "b": 0,
    }  # fmt: skip
    assert made.manifest["remarks"][-1].startswith(f"lite: {len(ids(made)):,} passages")
    run = tmp_path / "x.trec"
    queries = made.test_sets["dl19"].queries
    run.write_text("".join(f"{query} Q0 {passage} 1 1 x\n" for query in queries for passage in sorted(ids(made))[:1]))
    scores = score([run], made)
    assert scores.provenance["release"]["kind"] == "lite"
    nothing = pl.DataFrame()
    scored = Protocols(nothing, {}, {}, {}, {}, scores.provenance)
    shown = Results(scored, nothing, nothing, None, made.manifest["kind"], [])
    assert shown.comparable == "lite, a part of the collection: not comparable with the published figures"


def test_a_lite_release_of_a_lite_one_is_refused(made: Release, tmp_path: Path):
    with pytest.raises(UserError, match="is a lite release already"):
        lite.make(made, tmp_path / NAME)
