"""MS MARCO Chameleons: how runs do on the queries that other rankers fail on (CIKM 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.measures.score import score
from eval_kit.protocols.chameleon_figures import against_all, in_pairs, long_tails
from eval_kit.protocols.obstinacy import agreement, worst
from eval_kit.release import Release, TestSet
from eval_kit.release.reference import published

SETS = ("lesser", "pygmy", "veiled")
MEASURES = ("AP", "nDCG", "RR@10")
SUMMARY_MEASURES = ("AP", "RR@10")
REFERENCE = "cikm2021-table4"
REFERENCE_LEVEL = 50


@dataclass(frozen=True)
class Chameleons:
    """Results of the runs; the tables about all dev queries are empty where no run covers them.

    Attributes:
        averages: Table 1, from :func:`averages`.
        worst: Table 2, from :func:`eval_kit.protocols.obstinacy.worst`.
        precision: ``query_id`` and a column of average precision for each run.
        agreement: equation 1, from :func:`eval_kit.protocols.obstinacy.agreement`.
        sets: Tables 3, 5 and 6, from :func:`properties`.
        performance: Table 4 at every level, from :func:`chameleons`.
        standing: from :func:`standing`; empty where the release is not the papers'.
        published: whether the sets are the published ones, so that the papers' figures can stand beside these.
        provenance: of the scores.
    """

    averages: pl.DataFrame
    worst: pl.DataFrame
    precision: pl.DataFrame
    agreement: pl.DataFrame
    sets: pl.DataFrame
    performance: pl.DataFrame
    standing: pl.DataFrame
    published: bool
    provenance: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = ("averages", "worst", "agreement", "sets", "standing")
        frames = {name: getattr(self, name).to_dicts() for name in names}
        figures: dict[str, Any] = {"figure_4": in_pairs(self.performance).to_dicts()}
        if self.precision.height:
            figures["figure_1"] = long_tails(self.precision)
            figures["figure_3"] = against_all(self.averages, self.performance).to_dicts()
        return {"chameleons": self.performance.to_dicts(), **frames, **figures, "provenance": self.provenance}


def results(runs: Sequence[Path], release: Release, allow_missing: bool = False) -> Chameleons:
    """Every table of the paper that runs of dev-small can give.

    Args:
        runs: run files of the dev queries, or of the Chameleons sets alone.
        release: the one that holds the Chameleons.
        allow_missing: as for :func:`eval_kit.measures.score.score`.

    Raises:
        UserError: a release without Chameleons, or runs that do not cover them.
    """
    everything = all_queries(release)
    scores = score(runs, release, allow_missing, test_sets={**release.test_sets, everything.name: everything})
    return _of_values(scores.per_query(), release, scores.provenance)


def with_average_precision(release: Release) -> dict[str, TestSet]:
    """The release's test sets; the one that the Chameleons are a part of is scored by average precision too."""
    test_sets = dict(release.test_sets)
    for split in _parted(release) & set(test_sets):
        dev = test_sets[split]
        test_sets[split] = replace(dev, measures=tuple(dict.fromkeys((*dev.measures, *SUMMARY_MEASURES))))
    return test_sets


def _parted(release: Release) -> set[str]:
    """The test set that the Chameleons are a part of, dev for MS MARCO; none where there are no Chameleons."""
    return {test_set.qrels for test_set in release.test_sets.values() if test_set.shift == "chameleons"}


def of_grid(values: pl.DataFrame, release: Release, provenance: Mapping[str, Any]) -> Chameleons | None:
    """The same for grids whose runs cover dev: the mean over all of a system's models that search it counts as one run.

    Args:
        values: of the test sets of :func:`with_average_precision`; columns as in :mod:`eval_kit.protocols.in_out`.
        release: the one that was scored on.
        provenance: of the scores.

    Returns:
        None where the release holds no Chameleons, or no run covers them.
    """
    of_sets = pl.col("test_set").str.starts_with("chameleons.")
    on_dev = values.filter(of_sets | pl.col("test_set").is_in(_parted(release)))
    if on_dev.filter(pl.col("measure") == "AP").is_empty():
        return None
    keys = [pl.col("system").alias("run"), "test_set", "measure", "query_id"]
    return _of_values(on_dev.group_by(keys, maintain_order=True).agg(pl.col("value").mean()), release, provenance)


def _of_values(values: pl.DataFrame, release: Release, provenance: Mapping[str, Any]) -> Chameleons:
    performance = chameleons(values)
    split = all_queries(release).qrels
    dev = values.filter(pl.col("test_set") == split, pl.col("measure").is_in(SUMMARY_MEASURES))
    precision = dev.filter(pl.col("measure") == "AP").pivot("run", index="query_id", values="value")
    comparable = release.manifest["kind"] == "published"
    return Chameleons(
        averages(dev),
        worst(precision) if precision.height else pl.DataFrame(),
        precision,
        agreement(precision) if precision.height else pl.DataFrame(),
        properties(release),
        performance,
        standing(performance) if comparable else pl.DataFrame(),
        comparable,
        provenance,
    )


def all_queries(release: Release) -> TestSet:
    """The dev queries that the Chameleons are a part of, with the measures of Tables 1 and 2.

    Raises:
        UserError: the release holds no Chameleons.
    """
    sets = [test_set for test_set in release.test_sets.values() if test_set.shift == "chameleons"]
    if not sets:
        raise UserError(f"{release.folder}: holds no Chameleons")
    split = sets[0].qrels
    return TestSet(split, split, SUMMARY_MEASURES, release.table("chameleons", split)["query_id"], split)


def averages(values: pl.DataFrame) -> pl.DataFrame:
    """Table 1: mean and median of each measure, which are far apart as most queries score low.

    Args:
        values: per-query values of one test set, as :meth:`eval_kit.measures.score.Scores.per_query`.

    Returns:
        ``run``, ``measure``, ``mean``, ``median`` and ``queries``.
    """
    return values.group_by("run", "measure", maintain_order=True).agg(
        mean=pl.col("value").mean(), median=pl.col("value").median(), queries=pl.len()
    )


def chameleons(values: pl.DataFrame) -> pl.DataFrame:
    """Table 4 at every level: a run's figures on the Chameleons sets.

    A query is *solved* by a run that has a relevant passage among its first ten.

    Args:
        values: per-query values of every test set, as :meth:`eval_kit.measures.score.Scores.per_query`.

    Returns:
        ``run``, ``set``, ``level`` (percent), ``measure``, ``value``, ``queries``, ``solved`` (queries).

    Raises:
        UserError: no run covers the Chameleons sets.
    """
    name = pl.col("test_set").str.split(".")
    rows = values.filter(pl.col("test_set").str.starts_with("chameleons."), pl.col("measure").is_in(MEASURES))
    if rows.is_empty():
        raise UserError("no run covers the Chameleons sets of dev-small")
    rows = rows.with_columns(set=name.list.get(1), level=name.list.get(2).cast(pl.Int64))
    keys = ["run", "set", "level"]
    solved = rows.filter(pl.col("measure") == "RR@10").group_by(keys).agg(solved=(pl.col("value") > 0).sum())
    means = rows.group_by(*keys, "measure").agg(pl.col("value").mean(), pl.len().alias("queries"))
    return means.join(solved, on=keys).sort("run", "level", "set", "measure")


def properties(release: Release) -> pl.DataFrame:
    """Tables 3, 5 and 6: how many queries each set has, and their relevant passages and words.

    Words are separated by white space, which gives every cell of the paper's Table 6 within 0.01 (most are cut to
    two digits, some rounded: 5.9246 is printed 5.92, 6.4566 as 6.45). Splitting at single spaces, as the length shift
    does, gives up to 0.02 more than the table.

    Returns:
        ``test_set``, ``queries``, ``relevant`` and ``words`` (means over the queries): all dev queries, then each set.
    """
    everything = all_queries(release)
    judged = release.qrels(everything.qrels).filter(pl.col("relevance") > 0)
    relevant = judged.group_by("query_id").agg(relevant=pl.len())
    queries = release.table("chameleons", everything.qrels).join(relevant, on="query_id", how="left")
    counted = queries.select(
        "query_id",
        relevant=pl.col("relevant").fill_null(0).cast(pl.Float64),
        words=pl.col("text").str.count_matches(r"\S+").cast(pl.Float64),
    )
    sets = [test_set for test_set in release.test_sets.values() if test_set.shift == "chameleons"]
    rows = []
    for test_set in (everything, *sets):
        members = counted.filter(pl.col("query_id").is_in(test_set.queries.implode()))
        rows.append(members.select(pl.lit(test_set.name).alias("test_set"), pl.len().alias("queries"),
                                   pl.mean("relevant"), pl.mean("words")))  # fmt: skip
    return pl.concat(rows)


def standing(results: pl.DataFrame) -> pl.DataFrame:
    """Where each run stands among the published rankers (Table 4, the sets at 50 %).

    Returns:
        ``run``, ``set``, ``measure``, ``value``, ``rank`` (1 is best) and ``of``: the run and the published rankers.
    """
    rankers = pl.DataFrame(
        [
            (cell["test_set"].split(".")[1], cell["measure"], float(cell["value"]))
            for cell in published(REFERENCE)
            if cell["figure"] == "value"
        ],
        {"set": pl.String, "measure": pl.String, "published": pl.Float64},
        orient="row",
    )
    runs = results.filter(pl.col("level") == REFERENCE_LEVEL).select("run", "set", "measure", "value")
    return (
        runs.join(rankers, on=["set", "measure"])
        .group_by("run", "set", "measure", "value")
        .agg(rank=(pl.col("published") > pl.col("value")).sum() + 1, of=pl.len() + 1)
        .sort("run", "measure", "set")
    )
