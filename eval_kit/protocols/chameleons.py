"""MS MARCO Chameleons: how runs do on the queries that other rankers fail on (CIKM 2021)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.protocols.chameleon_figures import against_all, figures, in_pairs, long_tails
from eval_kit.protocols.obstinacy import LEVELS, agreement, strictly_more_obstinate, worst
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, TestSet
from eval_kit.release.reference import as_printed, published_cells
from eval_kit.results import Picture, Result
from eval_kit.tables.table import Column, Table, Value, number_columns, text_columns

SETS = ("lesser", "pygmy", "veiled")
MEASURES = ("AP", "nDCG", "RR@10")
SUMMARY_MEASURES = ("AP", "RR@10")
REFERENCE = "cikm2021-table4"
REFERENCE_LEVEL = 50
SOLVED = "solved"
AVERAGES, WORST, RELEVANT, WORDS = (f"cikm2021-table{number}" for number in (1, 2, 5, 6))

type PublishedFigures = dict[tuple[str, str, str, str], str]


@dataclass(frozen=True, repr=False)
class Chameleons(Result):
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

    title = "MS MARCO Chameleons: queries on which most rankers fail (CIKM 2021)"

    averages: pl.DataFrame
    worst: pl.DataFrame
    precision: pl.DataFrame
    agreement: pl.DataFrame
    sets: pl.DataFrame
    performance: pl.DataFrame
    standing: pl.DataFrame
    published: bool
    provenance: Mapping[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """Table 4 at every level: ``performance``."""
        return self.performance

    def tables(self) -> list[Table]:
        """Tables 1 and 2 and equation 1 where a run covers all dev queries; Table 4; Tables 3, 5 and 6 in one."""
        tables = [_averages_table(self), _worst_table(self)] if self.averages.height else []
        if self.agreement.height:
            tables.append(_agreement_table(self.agreement))
        return [*tables, _performance_table(self), _sets_table(self)]

    def figures(self) -> list[Picture]:
        """Figures 1 to 4; those of all queries only where a run covers them."""
        return list(figures(self.averages, self.precision, self.agreement, self.performance))

    def notes(self) -> list[str]:
        """Where each run stands among the published rankers."""
        notes = []
        for row in self.standing.iter_rows(named=True):
            notes.append(f"{row['run']}: {row['measure']} on {row['set']}: place {row['rank']} of {row['of']}")
        return notes

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = ("averages", "worst", "agreement", "sets", "standing")
        frames = {name: getattr(self, name).to_dicts() for name in names}
        figures_drawn: dict[str, Any] = {"figure_4": in_pairs(self.performance).to_dicts()}
        if self.precision.height:
            figures_drawn["figure_1"] = long_tails(self.precision)
            figures_drawn["figure_3"] = against_all(self.averages, self.performance).to_dicts()
        return {"chameleons": self.performance.to_dicts(), **frames, **figures_drawn, "provenance": self.provenance}


def results(runs: Sequence[Path], release: Release, allow_missing: bool = False) -> Chameleons:
    """Every table of the paper that runs of dev-small can give.

    Args:
        runs: run files of the dev queries, or of the Chameleons sets alone.
        release: the one that holds the Chameleons.
        allow_missing: as for :func:`eval_kit.protocols.scoring.score`.

    Raises:
        UserError: a release without Chameleons, or runs that do not cover them.
    """
    everything = all_queries(release)
    test_sets = {**release.test_sets, everything.name: everything}
    scores = score(runs, release, allow_missing, test_sets)
    return _of_values(scores.per_query(), release, scores.provenance)


def with_average_precision(release: Release) -> dict[str, TestSet]:
    """The release's test sets; the one that the Chameleons are a part of is scored by average precision too."""
    test_sets = dict(release.test_sets)
    for split in _whole_set(release) & set(test_sets):
        dev = test_sets[split]
        test_sets[split] = replace(dev, measures=tuple(dict.fromkeys((*dev.measures, *SUMMARY_MEASURES))))
    return test_sets


def _whole_set(release: Release) -> set[str]:
    """The test set that the Chameleons are a part of, dev for MS MARCO; none where there are no Chameleons."""
    return set(map(attrgetter("qrels"), _sets(release)))


def _sets(release: Release) -> list[TestSet]:
    return [test_set for test_set in release.test_sets.values() if test_set.shift == "chameleons"]


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
    on_dev = values.filter(of_sets | pl.col("test_set").is_in(_whole_set(release)))
    if on_dev.filter(pl.col("measure") == "AP").is_empty():
        return None
    keys = [pl.col("system").alias("run"), "test_set", "measure", "query_id"]
    return _of_values(on_dev.group_by(keys, maintain_order=True).agg(pl.col("value").mean()), release, provenance)


def _of_values(values: pl.DataFrame, release: Release, provenance: Mapping[str, Any]) -> Chameleons:
    performance = chameleons(values)
    split = all_queries(release).qrels
    dev = values.filter(pl.col("test_set") == split, pl.col("measure").is_in(SUMMARY_MEASURES))
    precision = dev.filter(pl.col("measure") == "AP").pivot("run", index="query_id", values="value")
    comparable = release.manifest.kind == "published"
    nothing = pl.DataFrame()
    return Chameleons(
        averages(dev),
        worst(precision) if precision.height else nothing,
        precision,
        agreement(precision) if precision.height else nothing,
        properties(release),
        performance,
        standing(performance) if comparable else nothing,
        comparable,
        provenance,
    )


def all_queries(release: Release) -> TestSet:
    """The dev queries that the Chameleons are a part of, with the measures of Tables 1 and 2.

    Raises:
        UserError: the release holds no Chameleons.
    """
    if not (sets := _sets(release)):
        raise UserError(f"{release.folder}: holds no Chameleons")
    split = sets[0].qrels
    return TestSet(split, split, SUMMARY_MEASURES, release.table("chameleons", split)["query_id"], split)


def averages(values: pl.DataFrame) -> pl.DataFrame:
    """Table 1: mean and median of each measure, which are far apart as most queries score low.

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
        values: per-query values of every test set, as :meth:`eval_kit.protocols.scores.Scores.per_query`.

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
    solutions = rows.filter(pl.col("measure") == "RR@10").group_by(keys).agg(solved=(pl.col("value") > 0).sum())
    means = rows.group_by(*keys, "measure").agg(pl.col("value").mean(), pl.len().alias("queries"))
    return means.join(solutions, on=keys).sort("run", "level", "set", "measure")


def properties(release: Release) -> pl.DataFrame:
    """Tables 3, 5 and 6: how many queries each set has, and their relevant passages and words.

    Words are separated by white space, which gives every cell of the paper's Table 6 within 0.01 (most are cut to
    two digits, some rounded: 5.9246 is printed 5.92, 6.4566 as 6.45). Splitting at single spaces, as the length shift
    does, gives up to 0.02 more than the table.

    Returns:
        ``test_set``, ``queries``, ``relevant`` and ``words`` (means over the queries): all dev queries, then each set.
    """
    everything = all_queries(release)
    judgements = release.qrels(everything.qrels).filter(pl.col("relevance") > 0)
    relevant = judgements.group_by("query_id").agg(relevant=pl.len())
    queries = release.table("chameleons", everything.qrels).join(relevant, on="query_id", how="left")
    counts = queries.select(
        "query_id",
        relevant=pl.col("relevant").fill_null(0).cast(pl.Float64),
        words=pl.col("text").str.count_matches(r"\S+").cast(pl.Float64),
    )
    rows = []
    for test_set in (everything, *_sets(release)):
        members = counts.filter(pl.col("query_id").is_in(test_set.queries.implode()))
        names = pl.lit(test_set.name).alias("test_set")
        rows.append(members.select(names, pl.len().alias("queries"), pl.mean("relevant", "words")))
    return pl.concat(rows)


def standing(results: pl.DataFrame) -> pl.DataFrame:
    """Where each run stands among the published rankers (Table 4, the sets at 50 %).

    Returns:
        ``run``, ``set``, ``measure``, ``value``, ``rank`` (1 is best) and ``of``: the run and the published rankers.
    """
    cells = pl.DataFrame(published_cells(REFERENCE)).filter(figure="value")
    rankers = cells.select(
        "measure", set=pl.col("test_set").str.split(".").list.get(1), published=pl.col("value").cast(pl.Float64)
    )
    runs = results.filter(pl.col("level") == REFERENCE_LEVEL).select("run", "set", "measure", "value")
    return (
        runs.join(rankers, on=["set", "measure"])
        .group_by("run", "set", "measure", "value")
        .agg(rank=(pl.col("published") > pl.col("value")).sum() + 1, of=pl.len() + 1)
        .sort("run", "measure", "set")
    )


def _averages_table(results: Chameleons) -> Table:
    """Table 1: one row per ranker, mean and median of each measure over all dev queries."""
    measures = results.averages["measure"].unique(maintain_order=True)
    wide = results.averages.pivot("measure", index="run", values=["mean", "median"])
    columns, names, keys = [Column("run", wrap="anywhere")], ["run"], []
    for measure, figure in product(measures, ("mean", "median")):
        columns.append(Column(figure, "number", group=measure))
        names.append(f"{figure}_{measure}")
        keys.append((results.sets["test_set"][0], measure, figure))
    lines = [*_lines(wide.select(names)), *_published_rows(results, AVERAGES, keys)]
    queries = f"{results.averages['queries'][0]:,}"
    return Table(columns, [lines], title=f"Table 1: means and medians over {queries} queries")


def _worst_table(results: Chameleons) -> Table:
    """Table 2: one row per ranker, one column per share of its own worst queries."""
    columns = [Column("run", wrap="anywhere")]
    columns += number_columns(*map("{} %".format, (*LEVELS, 100)), group="AP")
    names = [*map("dev.worst.{}".format, LEVELS), "dev"]
    lines = _lines(results.worst.pivot("level", index="run", values="value"))
    lines += _published_rows(results, WORST, [(name, "AP", "value") for name in names])
    return Table(columns, [lines], title="Table 2: each run on its own worst queries")


def _agreement_table(agreements: pl.DataFrame) -> Table:
    """Equation 1: one row per pair of runs, one column per share of each one's worst queries."""
    columns = [Column("run", wrap="anywhere"), Column("and run", wrap="anywhere")]
    columns += number_columns(*map("{} %".format, LEVELS))
    wide = agreements.pivot("level", index=["first", "second"], values="agreement")
    return Table(columns, [_lines(wide, 3)], title="Equation 1: worst queries that two runs share")


def _performance_table(results: Chameleons) -> Table:
    """Table 4 at every level: each measure on each set and level, one column per run; and Definition 1 below."""
    frame = results.performance
    runs = frame["run"].unique(maintain_order=True).to_list()
    paper = _paper_cells(results, REFERENCE)
    rankers = _rankers(paper)
    columns = [*text_columns("", "set", "level", wrap="never"), *number_columns("queries", wrap="never")]
    columns += number_columns(*runs, wrap="anywhere")
    columns += [Column("(published)", "number", group=name, style="dim") for name in rankers]
    rows = frame.rows_by_key(["run", "set", "level", "measure"], named=True, unique=True)
    lines = []
    levels = frame["level"].unique().sort()
    for measure, name, level in product((*MEASURES, SOLVED), SETS, levels):
        ours = [rows[run, name, level, "RR@10" if measure == SOLVED else measure] for run in runs]
        line = [measure, name, f"{level} %", f"{ours[0]['queries']:,}"]
        if measure == SOLVED:
            lines.append([*line, *(f"{row['solved']:,}" for row in ours), *[""] * len(rankers)])
            continue
        show = parse(measure).show
        paper_cells = [paper.get((ranker, f"chameleons.{name}.{level}", measure, "value"), "") for ranker in rankers]
        lines.append([*line, *(show(row["value"]) for row in ours), *paper_cells])
    return Table(columns, [lines], title="Table 4: the Chameleons", notes=[_definition_1(frame, levels[-1])])


def _sets_table(results: Chameleons) -> Table:
    """Tables 3, 5 and 6: queries, relevant passages per query and words per query of each set."""
    paper = _paper_cells(results, RELEVANT) | _paper_cells(results, WORDS)
    measures = {"relevant": "relevant", "words": "query-length"} if paper else {}
    columns = [Column("set"), *number_columns("queries", "relevant", "words")]
    columns += [Column("(published)", "number", group=name, style="dim") for name in measures]
    lines = []
    for test_set, queries, relevant, words in results.sets.iter_rows():
        published_cells = (paper.get(("none", test_set, measure, "mean"), "") for measure in measures.values())
        lines.append([test_set, f"{queries:,}", f"{relevant:.3f}", f"{words:.3f}", *published_cells])
    return Table(columns, [lines], title="Tables 3, 5 and 6: the sets, and relevant passages and words a query")


def _definition_1(frame: pl.DataFrame, level: int) -> str:
    """Whether lesser is strictly more obstinate than pygmy and that than veiled, as the paper says of its rankers."""
    rows = frame.filter(pl.col("measure") == "AP", pl.col("level") == level)
    by_set = [dict(rows.filter(pl.col("set") == name).select("run", "value").iter_rows()) for name in SETS]
    verdicts = []
    for same_ranker, words in ((True, "run by run"), (False, "for all pairs of runs, as it is written")):
        holds = all(strictly_more_obstinate(*sets, same_ranker) for sets in pairwise(by_set))
        verdicts.append(f"{'holds' if holds else 'does not hold'} {words}")
    return f"Definition 1 at {level} % (AP on lesser < pygmy < veiled): {'; '.join(verdicts)}"


def _paper_cells(results: Chameleons, id: str) -> PublishedFigures:
    cells = published_cells(id) if results.published else []
    return {(cell["system"], cell["test_set"], cell["measure"], cell["figure"]): as_printed(cell) for cell in cells}


def _rankers(paper: PublishedFigures) -> list[str]:
    return list(dict.fromkeys(system for system, _, _, figure in paper if system != "average"))


def _published_rows(results: Chameleons, id: str, keys: Sequence[tuple[str, str, str]]) -> Iterator[list[Value | str]]:
    """The figures of each published ranker: those of the test sets, measures and figures in ``keys``."""
    paper = _paper_cells(results, id)
    for ranker in _rankers(paper):
        cells: list[Value | str] = [Value(f"{ranker} (published)", style="dim")]
        for key in keys:
            cells.append(Value(paper[ranker, *key], style="dim"))
        yield cells


def _lines(frame: pl.DataFrame, digits: int = 4) -> list[list[Value | str]]:
    """The rows of a dataframe: texts as they are, numbers with so many decimals."""
    lines: list[list[Value | str]] = []
    for row in frame.iter_rows():
        lines.append([value if isinstance(value, str) else f"{value:.{digits}f}" for value in row])
    return lines
