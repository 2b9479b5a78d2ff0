"""Two snapshots on the pairs of query and passage that both judge, where how deep each judges makes no difference.

A snapshot that judges deeper finds more relevant passages in an unchanged run. On these pairs each run is condensed:
what is not among them is left out, and the others move up (Sakai 2007, SIGIR).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from eval_kit.measures.definitions import parse
from eval_kit.protocols.scores import APART, Mean, judged_shares
from eval_kit.protocols.scoring import on_pairs
from eval_kit.release import Release, TestSet
from eval_kit.runs.given import Run

type Means = dict[tuple[str, str], Mean]
"""By measure and system."""


def of_both(
    snapshots: Sequence[tuple[Release, TestSet]], runs: Sequence[Sequence[Run]], systems: Mapping[str, str]
) -> tuple[int, int, tuple[Means, Means]] | None:
    """How many pairs both judge, how many of these with another grade, and the means of each side on these.

    The means of both sides are over the same queries, in one order.

    Args:
        snapshots: the release and the test set of either side.
        runs: of either side.
        systems: of the second side's runs, by name; on the first side, runs have the systems' names.

    Returns:
        None where a side's judgements name relevant passages alone, so that only these could be shared.
    """
    sides = [_judged(release, test_set) for release, test_set in snapshots]
    if any((side["relevance"] > 0).all() for side in sides):
        return None
    both = sides[0].join(sides[1], on=["query_id", "passage_id"], suffix="_after", maintain_order="left")
    both = both.filter((pl.col("text") == pl.col("text_after")).fill_null(True))
    queries = both["query_id"].unique(maintain_order=True)

    def means(side: int, grade: str) -> Means:
        test_set = snapshots[side][1]
        measures = tuple(name for name in test_set.measures if not parse(name).kind.needs_retrieved)
        on = replace(test_set, queries=queries, measures=measures)
        qrels = both.select("query_id", "passage_id", relevance=grade)
        found = (mean for run in runs[side] if both.height for mean in on_pairs(run, on, qrels))
        return {(mean.measure, systems[mean.run] if side else mean.run): mean for mean in found}

    regraded = int((both["relevance"] != both["relevance_after"]).sum())
    return both.height, regraded, (means(0, "relevance"), means(1, "relevance_after"))


def _judged(release: Release, test_set: TestSet) -> pl.DataFrame:
    """The judgements of a test set's queries, with their texts."""
    judged = release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(test_set.queries.implode()))
    return judged.join(release.queries(test_set.name), on="query_id", how="left", maintain_order="left")


def differ_in_depth(provenance: Mapping[str, Any], name: str, other: str, systems: Mapping[str, str]) -> bool:
    """Whether of some system one side judges more of the first passages than the other.

    Args:
        provenance: of the scores, with those of the other snapshot as ``against``.
        name: the test set.
        other: that of the other snapshot.
        systems: of the other snapshot's runs, by name.
    """
    before, after = (judged_shares(each["runs"]) for each in (provenance, provenance["against"]))
    shares = {systems[run]: share for run, share in after.get(other, {}).items()}
    return any(abs(share - shares.get(run, share)) > APART for run, share in before.get(name, {}).items())
