"""The search task of trainers' evaluators and MTEB: a shift's test queries in a small release's own passages."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import polars as pl

from eval_kit.errors import UserError
from eval_kit.release.release import Release, TestSet


@dataclass(frozen=True)
class Pool:
    """The test sets of one shift and all that a search of them reads; of several sets, a query is there once."""

    release: Release
    test_sets: Sequence[TestSet]
    queries: pl.DataFrame
    passages: pl.DataFrame
    qrels: pl.DataFrame


def pool(release: Release, shift: str) -> Pool:
    """The pool of a shift such as ``topic``, of a release with embedded passages."""
    test_sets = release.test_sets_of(shift)
    if "passages" not in release.configs:
        raise UserError(
            f"{release.folder} contains no passages",
            do=f"Make a small release of it: python -m builder lite {release.folder} --queries 100 --shift {shift} "
            "--passages 20000",
        )
    queries = pl.concat(release.queries(test_set.name) for test_set in test_sets)
    qrels = pl.concat(release.qrels(split) for split in dict.fromkeys(map(attrgetter("qrels"), test_sets)))
    return Pool(
        release=release,
        test_sets=test_sets,
        queries=queries.unique("query_id", maintain_order=True),
        passages=release.table("passages", "passages"),
        qrels=qrels.join(queries, on="query_id", how="semi"),
    )
