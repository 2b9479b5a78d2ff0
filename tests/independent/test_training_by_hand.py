"""Who trains on what in the wh shift, and R(q, train) of just those queries (ECIR 2023 §3.2, §5.2), in plain Python."""

from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from builder import rebuilt
from builder import release as releases
from builder.collection import Collection
from builder.parameters import ShiftParameters
from builder.shifts.wh import WhParameters
from eval_kit.release import Release, open_release
from eval_kit.shifts import SHIFTS
from eval_kit.stats.similarity import mean_dot
from eval_kit.stats.similarity import test_and_training as queries_compared  # a name that pytest would collect
from eval_kit.stats.vectors import Vectors

TERMS = {"wha": ["what", "definition"], "how": ["how"], "who": ["who", "when", "where", "which"]}


@pytest.fixture(scope="module")
def release(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A wh shift drawn anew from the authors' own test queries, in which many members of a cluster are not drawn."""
    texts = {}
    for cluster in TERMS:
        path = shared / "upstream" / "naver" / "ms-marco-shift" / "EVAL" / "queries" / f"queries_{cluster}.tsv"
        lines = path.read_text(encoding="utf-8").splitlines()
        texts |= dict(line.split("\t", 1) for line in lines[::3])
    ids = list(texts)
    queries = pl.DataFrame({"query_id": ids, "text": list(texts.values())})
    qrels = pl.DataFrame({"query-id": ids, "corpus-id": [f"p{number}" for number in range(len(ids))]})
    qrels = qrels.with_columns(score=pl.lit(1, pl.Int64))
    collection = Collection(
        "wh",
        "the authors' wh queries",
        {"train": queries[:-200], "dev": queries[-200:]},
        {"train": qrels[:-200], "dev": qrels[-200:]},
    )
    folder = tmp_path_factory.mktemp("wh") / "release"
    releases.write(rebuilt.draft(collection, ["wh"], parameters=ShiftParameters(wh=WhParameters(size=1_000))), folder)
    return open_release(folder)


@pytest.mark.parametrize("held_out", TERMS)
def test_r_is_over_the_queries_that_the_model_was_trained_on(release: Release, held_out: str) -> None:
    tested = {query for query, _, _ in release.table("wh", "test").iter_rows()}
    tested |= set(release.qrels("dev")["query_id"])
    validation = set(release.table("validation", "validation")["query_id"])
    seen: dict[str, bool] = {}
    undrawn = 0
    for query, text, cluster in release.table("wh", "train").iter_rows():
        matches = any(term in text.lower() for term in TERMS[held_out])
        undrawn += matches and cluster != held_out
        seen[query] = not matches and query not in tested and query not in validation
    trained_on = [query for query, is_seen in seen.items() if is_seen]
    assert undrawn > 10, "queries of the rule in other clusters alone"
    assert set(SHIFTS["wh"].training(release, held_out).queries["query_id"]) == set(trained_on)

    everything = pl.concat(release.table("wh", split)["query_id"] for split in ("train", "test")).unique()
    values = np.random.default_rng(0).standard_normal((len(everything), 5), dtype=np.float32)
    by_query = dict(zip(everything, values.astype(float), strict=True))
    vectors = Vectors("random", everything, values)
    test, training = queries_compared(release, "wh", held_out)
    assert training.height == len(trained_on)
    nearness = mean_dot(vectors.of(test["query_id"]), vectors.of(training["query_id"]))
    for query, r in islice(zip(test["query_id"], nearness, strict=True), 50):
        by_hand = [sum(a * b for a, b in zip(by_query[query], by_query[other], strict=True)) for other in trained_on]
        assert r == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-9)
