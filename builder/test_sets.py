"""The test sets that a release of this benchmark has, with their names and official measures."""

from collections.abc import Iterable, Iterator

from builder.release import Table, TestSet
from builder.shifts import length, wh

TOPICS = ("c0", "c1", "c2", "c3", "c4")
BUCKETS = ("b1", "b2", "b3", "b4", "b5")
CHAMELEON_SETS = ("veiled", "pygmy", "lesser")
OBSTINACY = ("none", *CHAMELEON_SETS)
LEVELS = (10, 20, 30, 40, 50)
CONFIGS = ("topic", "wh", "length", "resttest", "restrain", "chameleons", "trec_dl", "validation", "qrels", "passages")

SHIFT_MEASURES = ("RR@10", "ASL@100", "R@1000")
DEV_MEASURES = ("RR@10", "R@100", "R@1000")
DL_MEASURES = ("nDCG@10", "RR(rel=2)@10", "R(rel=2)@100", "AP(rel=2)@100", "R(rel=2)@1000")
CHAMELEON_MEASURES = ("AP", "nDCG", "RR@10", "R@1000")


def test_sets(tables: Iterable[Table]) -> list[TestSet]:
    """The test sets whose queries and judgements are among ``tables``.

    TREC DL's ReSTTest buckets hold 1 to 18 queries each; they are in the table, but no test sets of their own.
    """
    return list(_test_sets({(table.config, table.split) for table in tables}))


def in_order(tables: Iterable[Table]) -> list[Table]:
    """The tables, their configs in the order in which a release lists them."""
    return sorted(tables, key=lambda table: CONFIGS.index(table.config))


def _test_sets(have: set[tuple[str, str]]) -> Iterator[TestSet]:
    clusters = {"topic": TOPICS, "wh": wh.CLUSTERS, "length": length.CLUSTERS}
    for shift, names in clusters.items():
        qrels = "dev" if shift == "length" else f"{shift}_test"
        if {(shift, "test"), ("qrels", qrels)} <= have:
            for name in names:
                yield TestSet(f"{shift}.{name}", shift, shift, "test", qrels, SHIFT_MEASURES, where=("cluster", [name]))
    for split in ("dev", "dl19", "dl20"):
        if {("resttest", split), ("qrels", split)} <= have:
            measures = DEV_MEASURES if split == "dev" else DL_MEASURES
            yield TestSet(split, split, "resttest", split, split, measures)
    if {("resttest", "dev"), ("qrels", "dev")} <= have:
        for bucket in BUCKETS:
            where = ("bucket", [bucket])
            yield TestSet(f"resttest.{bucket}", "resttest", "resttest", "dev", "dev", DEV_MEASURES, where)
    if {("chameleons", "dev"), ("qrels", "dev")} <= have:
        for name in CHAMELEON_SETS:
            for level in LEVELS:
                at_least = OBSTINACY[OBSTINACY.index(name) :]
                yield TestSet(
                    f"chameleons.{name}.{level}",
                    "chameleons",
                    "chameleons",
                    "dev",
                    "dev",
                    CHAMELEON_MEASURES,
                    where=(f"level_{level}", at_least),
                )
