"""The test sets of a release, with their names and official measures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import polars as pl
import polars.selectors as cs

from eval_kit.authors.draft import Table, new_test_set
from eval_kit.documents import TestSetEntry
from eval_kit.shifts import CLUSTERED, ROLES, main_split

TOPICS = ("c0", "c1", "c2", "c3", "c4")
BUCKETS = ("b1", "b2", "b3", "b4", "b5")
CHAMELEON_SETS = ("veiled", "pygmy", "lesser")
OBSTINACY = ("none", *CHAMELEON_SETS)
LEVELS = (10, 20, 30, 40, 50)
SHIFT_MEASURES = ("RR@10", "ASL@100", "R@1000")
DEV_MEASURES = ("RR@10", "R@100", "R@1000")
_CROSSED_MEASURES = ("RR@10", "R@100")
DL_MEASURES = ("nDCG@10", "RR(rel=2)@10", "R(rel=2)@100", "AP(rel=2)@100", "R(rel=2)@1000")
OTHER_MEASURES = ("nDCG@10", "RR@10", "R@100", "R@1000")
CHAMELEON_MEASURES = ("AP", "nDCG", "RR@10", "R@1000")
DL_HARD_MEASURES = ("nDCG@10", "RR(rel=2)", "AP(rel=2)", "R(rel=2)@1000")
_OWN_TEST_SETS = {"dl_typo": DL_MEASURES, "dlhard": DL_HARD_MEASURES}
"""Configs that are one test set each, with their own queries and judgements."""
_BY_SPLIT = {"dev": DEV_MEASURES, "dl19": DL_MEASURES, "dl20": DL_MEASURES}

type Tables = Mapping[tuple[str, str], pl.DataFrame]


def test_sets(tables: Iterable[Table]) -> list[TestSetEntry]:
    """The test sets whose queries and judgements are among ``tables``; none is empty.

    TREC DL's ReSTTest buckets hold 1 to 18 queries each; they are in the table, but are not separate test sets.
    """
    return list(_test_sets({(table.config, table.split): table.frame for table in tables}))


def models_in(table: pl.DataFrame) -> list[str]:
    """The columns of a crossed table that hold the roles of a model: m1, m2, ..."""
    return table.select(cs.matches(r"^m\d+$")).columns


def levels_in(table: pl.DataFrame) -> list[str]:
    """The columns of a table of Chameleons that hold a query's obstinacy at a level: level_10, level_20, ..."""
    return table.select(cs.starts_with("level_")).columns


def _test_sets(have: Tables) -> Iterator[TestSetEntry]:
    splits = [split for config, split in have if config == "qrels"]
    for shift in CLUSTERED:
        test_split = f"{shift}_test"
        qrels = test_split if test_split in splits else main_split(splits)
        if qrels and {(shift, "test"), ("qrels", qrels)} <= have.keys():
            measures = [*(["nDCG@10"] if _is_graded(have["qrels", qrels]) else []), *SHIFT_MEASURES]
            for name in _labels(have[shift, "test"]["cluster"]):
                yield new_test_set(f"{shift}.{name}", shift, shift, "test", qrels, measures, where=("cluster", [name]))
    evaluation = [split for config, split in have if config == "resttest" and split != "train"]
    for split in evaluation:
        if ("qrels", split) in have:
            yield new_test_set(split, split, "resttest", split, split, _measures(split, have))
    for config, split in have:  # the judged topics of TREC DL, in a release without ReSTTest
        if config == "trec_dl" and split not in evaluation and ("qrels", split) in have:
            yield new_test_set(split, split, "trec_dl", split, split, DL_MEASURES, where=("judged", ["yes"]))
    main = main_split(evaluation)
    if main and ("qrels", main) in have:
        for bucket in _labels(have["resttest", main]["bucket"]):
            name, where = f"resttest.{bucket}", ("bucket", [bucket])
            yield new_test_set(name, "resttest", "resttest", main, main, _measures(main, have), where)
    if {("crossed", "train"), ("qrels", "train")} <= have.keys():
        for model in models_in(have["crossed", "train"]):
            where = (model, list(ROLES[1:]))
            yield new_test_set(f"crossed.{model}", "crossed", "crossed", "train", "train", _CROSSED_MEASURES, where)
    for config, split in have:
        if config == "chameleons" and ("qrels", split) in have:
            yield from _chameleons(split, have["chameleons", split])
    for name, own_measures in _OWN_TEST_SETS.items():
        if {(name, "test"), ("qrels", name)} <= have.keys():
            yield new_test_set(name, name, name, "test", name, own_measures)


def _chameleons(split: str, rows: pl.DataFrame) -> Iterator[TestSetEntry]:
    for obstinacy, level in product(CHAMELEON_SETS, levels_in(rows)):
        at_least = OBSTINACY[OBSTINACY.index(obstinacy) :]
        if rows[level].is_in(at_least).any():
            name, where = f"chameleons.{obstinacy}.{level.removeprefix('level_')}", (level, at_least)
            yield new_test_set(name, "chameleons", "chameleons", split, split, CHAMELEON_MEASURES, where)


def _labels(column: pl.Series) -> list[str]:
    """The labels that occur, in the order of their codes."""
    return column.drop_nulls().unique().sort().cast(pl.String).to_list()


def _measures(split: str, have: Tables) -> Sequence[str]:
    """The official measures of a split; a dev split with graded judgements has nDCG first."""
    graded_dev = split == "dev" and _is_graded(have["qrels", split])
    return OTHER_MEASURES if graded_dev else _BY_SPLIT.get(split, OTHER_MEASURES)


def _is_graded(qrels: pl.DataFrame) -> bool:
    return bool((qrels["score"] > 1).any())
