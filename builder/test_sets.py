"""The test sets of a release, with their names and official measures."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from builder.release import Table, new_test_set
from eval_kit.documents import TestSetEntry
from eval_kit.shift import main_split
from eval_kit.shifts import CLUSTERED, ROLES, SHIFTS

TOPICS = ("c0", "c1", "c2", "c3", "c4")
BUCKETS = ("b1", "b2", "b3", "b4", "b5")
CHAMELEON_SETS = ("veiled", "pygmy", "lesser")
OBSTINACY = ("none", *CHAMELEON_SETS)
LEVELS = (10, 20, 30, 40, 50)
CONFIGS = (
    *SHIFTS,
    "chameleons",
    "trec_dl",
    "dl_typo",
    "dlhard",
    "variations",
    "validation",
    "qrels",
    "negatives",
    "passages",
)

SHIFT_MEASURES = ("RR@10", "ASL@100", "R@1000")
DEV_MEASURES = ("RR@10", "R@100", "R@1000")
CROSSED_MEASURES = ("RR@10", "R@100")
DL_MEASURES = ("nDCG@10", "RR(rel=2)@10", "R(rel=2)@100", "AP(rel=2)@100", "R(rel=2)@1000")
OTHER_MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")
CHAMELEON_MEASURES = ("AP", "nDCG", "RR@10", "R@1000")
DL_HARD_MEASURES = ("nDCG@10", "RR(rel=2)", "AP(rel=2)", "R(rel=2)@1000")
OWN_TEST_SETS = {"dl_typo": DL_MEASURES, "dlhard": DL_HARD_MEASURES}
"""Configs that are one test set each, with their own queries and judgements."""
BY_SPLIT = {"dev": DEV_MEASURES, "dl19": DL_MEASURES, "dl20": DL_MEASURES}

type Tables = Mapping[tuple[str, str], pl.DataFrame]


def test_sets(tables: Iterable[Table]) -> list[TestSetEntry]:
    """The test sets whose queries and judgements are among ``tables``; none is empty.

    TREC DL's ReSTTest buckets hold 1 to 18 queries each; they are in the table, but are not separate test sets.
    """
    return list(_test_sets({(table.config, table.split): table.frame for table in tables}))


def in_order(tables: Iterable[Table]) -> list[Table]:
    """The tables, their configs in the order in which a release lists them."""
    return sorted(tables, key=lambda table: CONFIGS.index(table.config))


def models_in(table: pl.DataFrame) -> list[str]:
    """The columns of a crossed table that hold the roles of a model: m1, m2, ..."""
    return [name for name in table.columns if re.fullmatch(r"m\d+", name)]


def _test_sets(have: Tables) -> Iterator[TestSetEntry]:
    splits = [split for config, split in have if config == "qrels"]
    for shift in CLUSTERED:
        test_split = f"{shift}_test"
        qrels = test_split if test_split in splits else main_split(splits)
        if qrels and {(shift, "test"), ("qrels", qrels)} <= have.keys():
            measures: Sequence[str] = (
                ("nDCG@10", *SHIFT_MEASURES) if _is_graded(have["qrels", qrels]) else SHIFT_MEASURES
            )
            for name in _labels(have[shift, "test"]["cluster"]):
                yield new_test_set(f"{shift}.{name}", shift, shift, "test", qrels, measures, where=("cluster", [name]))
    evaluation = [split for config, split in have if config == "resttest" and split != "train"]
    for split in evaluation:
        if ("qrels", split) in have:
            measures = _measures(split, have)
            yield new_test_set(split, split, "resttest", split, split, measures)
    yield from _undivided_dl(have, evaluation)
    main = main_split(evaluation)
    if main and ("qrels", main) in have:
        for bucket in _labels(have["resttest", main]["bucket"]):
            where = ("bucket", [bucket])
            measures = _measures(main, have)
            yield new_test_set(f"resttest.{bucket}", "resttest", "resttest", main, main, measures, where)
    if {("crossed", "train"), ("qrels", "train")} <= have.keys():
        for model in models_in(have["crossed", "train"]):
            where = (model, list(ROLES[1:]))
            yield new_test_set(f"crossed.{model}", "crossed", "crossed", "train", "train", CROSSED_MEASURES, where)
    for split in (split for config, split in have if config == "chameleons"):
        if ("qrels", split) in have:
            yield from _chameleons(split, have["chameleons", split])
    for name, measures in OWN_TEST_SETS.items():
        if {(name, "test"), ("qrels", name)} <= have.keys():
            yield new_test_set(name, name, name, "test", name, measures)


def _undivided_dl(have: Tables, elsewhere: Sequence[str]) -> Iterator[TestSetEntry]:
    """TREC DL's judged topics, in a release without ReSTTest."""
    for split in (split for config, split in have if config == "trec_dl" and split not in elsewhere):
        if ("qrels", split) in have:
            yield new_test_set(split, split, "trec_dl", split, split, DL_MEASURES, where=("judged", ["yes"]))


def _chameleons(split: str, rows: pl.DataFrame) -> Iterator[TestSetEntry]:
    levels = [name for name in rows.columns if name.startswith("level_")]
    for name in CHAMELEON_SETS:
        for level in levels:
            at_least = OBSTINACY[OBSTINACY.index(name) :]
            if set(at_least) & set(_labels(rows[level])):
                yield new_test_set(
                    f"chameleons.{name}.{level.removeprefix('level_')}",
                    "chameleons",
                    "chameleons",
                    split,
                    split,
                    CHAMELEON_MEASURES,
                    where=(level, at_least),
                )


def _labels(column: pl.Series) -> list[str]:
    """The labels that occur, in the order of their codes."""
    return [str(label) for label in column.unique().sort() if label is not None]


def _measures(split: str, have: Tables) -> Sequence[str]:
    """The official measures of a split; a dev split with graded judgements has nDCG first."""
    graded_dev = split == "dev" and _is_graded(have["qrels", split])
    return OTHER_MEASURES if graded_dev else BY_SPLIT.get(split, OTHER_MEASURES)


def _is_graded(qrels: pl.DataFrame) -> bool:
    return bool((qrels["score"] > 1).any())
