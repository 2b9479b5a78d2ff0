"""Figures by part of a division: means of runs, and paired differences between systems, over queries and over kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from eval_kit.divisions import FEW, FEWEST, OTHERS, WHOLE, WORDS, Division, Parts, divide
from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.protocols.scores import Scores
from eval_kit.release import Release
from eval_kit.stats.differences import differences, verdict
from eval_kit.stats.figure import Figure
from eval_kit.stats.losses import holm
from eval_kit.stats.parts import FEWEST_PARTS, heterogeneity
from eval_kit.tables.table import Column, Fields, Source, Table, Value, bracketed, laid_out, of, side_by_side

_MEANS = dict.fromkeys(("test_set", "by", "part", "run", "measure"), pl.String()) | {
    "queries": pl.Int64(), "value": pl.Float64()
}  # fmt: skip
RANGE = r"^(quarter )?\d[\d.,:to +-]*$"
"""Parts that are ranges of numbers, or dates, in whose order they are drawn."""
NOT_TESTED = f"fewer than {FEWEST} queries: not tested"
THESE, KINDS = "these queries", "queries of such kinds"
DIFFERENCES = (
    dict.fromkeys(("test_set", "measure", "system", "by", "part"), pl.String())
    | {"queries": pl.Int64()}
    | dict.fromkeys(("baseline", "value", "difference", "low", "high", "p", "p_holm"), pl.Float64())
    | dict.fromkeys(("p_rest", "p_rest_holm", "pooled", "detectable", "p_loses", "p_loses_holm"), pl.Float64())
    | {"verdict": pl.String()}
)
"""Of a part: its queries, both means, the difference with its 95 % interval and p over its queries (also after Holm's
correction over parts, systems and test sets); ``p_rest`` of no difference to the other parts; ``pooled``, drawn towards
the mean of the parts, for pictures alone; the loss found in 80 % of cases; with a margin, the p of losing that much
and the verdict."""
OVER_PARTS = (
    dict.fromkeys(("test_set", "measure", "system", "by", "claim"), pl.String())
    | dict.fromkeys(("parts", "queries"), pl.Int64())
    | dict.fromkeys(("difference", "low", "high", "spread", "another_low", "another_high", "p_parts"), pl.Float64())
)
"""Over all parts, by what is random: :data:`THESE`, or :data:`KINDS` with τ (``spread``), the 95 % interval of another
part (``another_low``, ``another_high``) and the p of parts that differ by chance alone."""


def divisions(
    by: Sequence[str | Parts], release: Release, test_sets: Sequence[str], training: pl.DataFrame | None = None
) -> dict[str, list[Division]]:
    """The divisions of each test set that has queries in one: by test set.

    Raises:
        UserError: a division that no test set has.
    """
    found: dict[str, list[Division]] = {}
    for each in by:
        faults = []
        for name in test_sets:
            try:
                found.setdefault(name, []).append(divide(each, release, release.queries(name), training))
            except UserError as fault:
                faults.append(fault)
        if len(faults) == len(test_sets):
            raise faults[0]
    return found


def means(values: pl.DataFrame, of_test_sets: Mapping[str, Sequence[Division]]) -> pl.DataFrame:
    """The mean of each run in each part.

    Args:
        values: ``run``, ``test_set``, ``measure``, ``query_id``, ``value``.
        of_test_sets: from :func:`divisions`.

    Returns:
        As :data:`_MEANS`, in the order of test sets, divisions, parts, runs and measures.
    """
    frames = [pl.DataFrame(schema=_MEANS)]
    for test_set, of_test_set in of_test_sets.items():
        rows = values.filter(pl.col("test_set") == test_set)
        for division in of_test_set:
            order = division.parts["part"].unique(maintain_order=True).to_frame()
            keys = ("run", "measure")
            grouped = division.parts.join(rows, on="query_id", maintain_order="right").group_by(
                "part", *keys, maintain_order=True
            )
            of_parts = grouped.agg(pl.len().cast(pl.Int64).alias("queries"), pl.col("value").mean())
            of_parts = order.join(of_parts, on="part", maintain_order="left")
            named = of_parts.with_columns(test_set=pl.lit(test_set), by=pl.lit(division.name))
            frames.append(named.select(*_MEANS))
    return pl.concat(frames)


@dataclass(frozen=True, repr=False)
class ScoresByPart(Scores):
    """Scores, and the means of each part.

    Attributes:
        parts: as :data:`_MEANS`.
        divisions: where each comes from, by name.
        remarks: that, and queries in no part.
    """

    parts: pl.DataFrame
    divisions: Mapping[str, str]
    remarks: Sequence[str]

    def tables(self) -> list[Table]:
        """The means over all queries, then those of each part."""
        return super().tables() + _tables_of_means(self.parts)

    def notes(self) -> list[str]:
        """As of the scores; and what is small or in no part."""
        return [*super().notes(), f"\u00b7 fewer than {FEW} queries", *self.remarks]

    def as_json(self) -> dict[str, Any]:
        """The document of scores.schema.json, with the means of parts as ``parts``, and the ``divisions``."""
        return super().as_json() | {"parts": self.parts.to_dicts(), "divisions": dict(self.divisions)}


def scores_by_part(
    scores: Scores, by: Sequence[str | Parts], release: Release, training: pl.DataFrame | None = None
) -> ScoresByPart:
    """The means of each part, besides those over all queries.

    Args:
        scores: from :func:`eval_kit.protocols.scoring.score`.
        by: as :func:`eval_kit.divisions.divide` takes them.
        release: the one that was scored on.
        training: for the divisions ``distance`` and ``leaked``.

    Raises:
        UserError: a division that no test set has.
    """
    covered = list(dict.fromkeys(mean.test_set for mean in scores.means if mean.test_set in release.test_sets))
    of_test_sets = divisions(by, release, covered, training)
    of_parts = means(scores.per_query(), of_test_sets)
    remarks = list(remarks_on(of_test_sets, release))
    return ScoresByPart(scores.means, scores.provenance, of_parts, sources(of_test_sets), remarks)


def sources(of_test_sets: Mapping[str, Sequence[Division]]) -> dict[str, str]:
    """Where each division comes from, by its name."""
    return {each.name: each.source for each in chain.from_iterable(of_test_sets.values())}


def remarks_on(of_test_sets: Mapping[str, Sequence[Division]], release: Release) -> Iterator[str]:
    """Where divisions come from, and a line for each that leaves queries of a test set out."""
    yield from (f"{name}: {source}" for name, source in sources(of_test_sets).items() if source != name)
    for test_set, of_test_set in of_test_sets.items():
        queries = release.test_sets[test_set].queries
        for division in of_test_set:
            left_out = len(queries) - division.parts["query_id"].n_unique()
            if left_out:
                yield f"{left_out:,} of the {len(queries):,} queries of {test_set} are in no part of {division.name}"


def _tables_of_means(of_parts: pl.DataFrame) -> list[Table]:
    """A table for each test set and division: rows are parts and runs, columns measures."""
    tables = []
    for (test_set, by), group in of_parts.group_by("test_set", "by", maintain_order=True):
        columns = [Column(str(by), source="part"), Column("run"), Column("n", "number", _count)]
        for measure in group["measure"].unique(maintain_order=True):
            columns.append(Column(measure, "number", of(measure, "value"), parse(measure).show, none=""))
        rows = side_by_side(_folded(group, ["run", "measure"], ["value"]), ["part", "run", "queries"], "measure")
        tables.append(laid_out(rows, columns, block="part", title=f"{test_set} by {by}"))
    return tables


def _folded(rows: pl.DataFrame, keys: Sequence[str], means: Sequence[str]) -> pl.DataFrame:
    """The rows; of each of the keys, all parts of fewer than :data:`FEWEST` queries as one, which ``is_folded``."""
    queries, few = pl.col("queries"), rows.filter(pl.col("queries") < FEWEST)
    names = few["part"].unique()
    weighted = ((pl.col(name) * queries).sum() / queries.sum() for name in means)
    together = few.group_by(*keys, maintain_order=True).agg(*weighted, queries.sum())
    part = names[0] if len(names) == 1 else f"{OTHERS} ({len(names)} parts)"
    folded = together.with_columns(part=pl.lit(part), is_folded=True)
    return pl.concat([rows.filter(queries >= FEWEST).with_columns(is_folded=False), folded], how="diagonal")


def _count(row: Fields) -> Value:
    return Value(f"{row['queries']:,}", mark="·" if row["queries"] < FEW else "")


def compared(
    values: pl.DataFrame,
    systems: Sequence[str],
    of_test_sets: Mapping[str, Sequence[Division]],
    margin: float | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Differences of systems from the first, in each part, and over all parts.

    Args:
        values: ``system``, ``test_set``, ``measure``, ``query_id``, ``value``.
        systems: the baseline first.
        of_test_sets: from :func:`divisions`.
        margin: the loss that a verdict is about, in the measure's unit.

    Returns:
        As :data:`DIFFERENCES` and as :data:`OVER_PARTS`.
    """
    rows: list[dict[str, Any]] = []
    over: list[dict[str, Any]] = []
    base, *others = systems
    for (test_set, measure), group in values.group_by("test_set", "measure", maintain_order=True):
        sign = parse(str(measure)).sign
        columns = {str(name): each for (name,), each in group.group_by("system", maintain_order=True)}
        for division, system in ((d, s) for d in of_test_sets.get(str(test_set), ()) for s in others):
            if base not in columns or system not in columns:
                continue
            both = (
                columns[base]
                .select("query_id", baseline="value")
                .join(columns[system].select("query_id", "value"), on="query_id")
            )
            keys = {"test_set": test_set, "measure": measure, "system": system, "by": division.name}
            of_parts, of_all = _in_parts(division.parts.join(both, on="query_id", maintain_order="left"), sign, margin)
            rows += [keys | row for row in of_parts]
            over += [keys | row for row in of_all]
    frame = pl.DataFrame(rows, DIFFERENCES, infer_schema_length=None)
    return _corrected(frame, margin), pl.DataFrame(over, OVER_PARTS, infer_schema_length=None)


def _in_parts(
    members: pl.DataFrame, sign: int, margin: float | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of one system, test set, measure and division; ``members`` has part, query_id, baseline, value."""
    names = members["part"].unique(maintain_order=True)
    index = members["part"].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    change = (members["value"] - members["baseline"]).to_numpy()
    of_parts, to_rest = differences(change, index, len(names))
    grouped = members.group_by("part", maintain_order=True)
    # counted apart: beside a count, polars takes the mean in another order, whose last digit differs
    levels = grouped.agg(pl.col("baseline", "value").mean()).with_columns(queries=grouped.len()["len"].cast(pl.Int64))
    large = (levels["queries"] >= FEWEST).to_list()
    tested = [each for each, enough in zip(of_parts, large, strict=True) if enough and each.error]
    kinds = None
    if len(tested) >= FEWEST_PARTS:
        kinds = heterogeneity(np.array([each.value for each in tested]), np.array([each.error for each in tested]))
    rows = []
    for row, of_part, rest, enough in zip(levels.to_dicts(), of_parts, to_rest, large, strict=True):
        row |= _ends("difference", of_part)
        row |= {"p": of_part.p if enough else None, "p_rest": rest if enough else None}
        if kinds is not None and of_part.error is not None:
            share = kinds.spread**2 / (kinds.spread**2 + of_part.error**2) if of_part.error or kinds.spread else 1.0
            row["pooled"] = kinds.value + share * (row["difference"] - kinds.value)
        row["detectable"] = of_part.detectable(max(len(tested), 1)) if enough else None
        if margin is not None and enough:
            row["p_loses"] = replace(of_part, value=sign * row["difference"]).p_loses(margin)
        rows.append(row)
    once = members.unique("query_id", keep="first", maintain_order=True)
    [together], _ = differences((once["value"] - once["baseline"]).to_numpy(), np.zeros(once.height, np.int64), 1)
    queries = {"queries": once.height}
    over = [{"claim": THESE, "parts": len(names), **queries} | _ends("difference", together)]
    if kinds is not None:
        another = dict(zip(("another_low", "another_high"), kinds.another.interval, strict=True))
        of_kinds = {"claim": KINDS, "parts": kinds.parts, **queries} | _ends("difference", kinds)
        over.append(of_kinds | {"spread": kinds.spread, "p_parts": kinds.p_q} | another)
    return rows, over


def _ends(name: str, figure: Figure) -> dict[str, Any]:
    low, high = figure.interval
    return {name: figure.value, "low": low, "high": high}


def _corrected(rows: pl.DataFrame, margin: float | None) -> pl.DataFrame:
    """With Holm's correction over the parts, systems and test sets of a measure and division; and with verdicts."""
    frames = []
    for _, group in rows.group_by("measure", "by", maintain_order=True):
        for name in ("p", "p_rest", "p_loses"):
            group = group.with_columns(pl.Series(f"{name}_holm", holm(group[name].to_list()), pl.Float64))
        if margin is not None:
            sign = parse(group["measure"][0]).sign
            words = [verdict(row["p_holm"], row["p_loses_holm"], sign * row["difference"]) for row in group.to_dicts()]
            group = group.with_columns(pl.Series("verdict", words))
        frames.append(group)
    return pl.concat(frames) if frames else rows


def tables_of_differences(rows: pl.DataFrame, over: pl.DataFrame) -> list[Table]:
    """A table for each test set, measure and division: a row a part and system, then the lines over all parts."""
    tables = []
    with_verdict = rows["verdict"].count() > 0
    for key, group in rows.group_by("test_set", "measure", "by", maintain_order=True):
        test_set, name, by = map(str, key)
        show = parse(name).show
        columns = [
            Column(by, source=lambda row: row["part"] or row["claim"]),
            Column("system"),
            Column("n", "number", _count),
            Column("baseline", "number", format=show, none=""),
            Column("value", "number", format=show, none=""),
            Column("Δ [95 % interval]", "number", difference),
            Column("p (Holm)", "number", _of_part("p_holm"), ".3f"),
            Column("≠ rest", "number", _of_part("p_rest_holm"), ".3f", shown=by != WHOLE),
            Column("verdict", source=_verdict, wrap="never", shown=with_verdict),
        ]
        of_parts = _folded(group, ["system", "measure"], ["baseline", "value", "difference"])
        of_all = over.filter(pl.col("by") != WHOLE, test_set=pl.lit(test_set), measure=pl.lit(name), by=pl.lit(by))
        lines = pl.concat([of_parts, of_all.drop("parts")], how="diagonal")
        lines = lines.with_columns(is_over=pl.col("part").is_null())
        title = f"{test_set}, {name}{f', by {by}' * (by != WHOLE)}"
        tables.append(laid_out(lines, columns, block="is_over", title=title))
    return tables


def _of_part(name: str) -> Source:
    """The p of a part that is tested; nothing stands where none could."""
    return lambda row: row[name] if row["is_folded"] is False else ""


def _verdict(row: Fields) -> str | None:
    return NOT_TESTED if row["is_folded"] else row["verdict"]


def notes_of(rows: pl.DataFrame, over: pl.DataFrame) -> list[str]:
    """What the lines over all parts claim, and how much parts differ."""
    over = over.filter(pl.col("by") != WHOLE)
    if over.is_empty():
        return [f"· fewer than {FEW} queries", "The gate's interval and p are over queries, by Student's t."]
    notes = [
        f"· fewer than {FEW} queries",
        "Intervals and p over a part's queries, by Student's t; p after Holm's correction over parts, systems and test "
        "sets, unlike the intervals; ≠ rest: p of no difference to the other parts, likewise.",
        f"{THESE}: queries random, parts as they are. {KINDS}: parts random too, each a draw of its kind.",
    ]
    for row in over.filter(claim=pl.lit(KINDS)).iter_rows(named=True):
        show = parse(row["measure"]).show
        another = f"[{show(row['another_low'], with_sign=True)}, {show(row['another_high'], with_sign=True)}]"
        about = f"{row['system']}, {row['test_set']}, {row['measure']}, by {row['by']}"
        notes.append(f"{about}: kinds differ by τ = {show(row['spread'])}; another part's difference: {another} (95 %)")
    few = over.filter(pl.col("parts") < FEWEST_PARTS)["by"].unique(maintain_order=True)
    enough = f"at least {FEWEST_PARTS} with {FEWEST} queries each"
    return [*notes, *(f"{by}: too few parts ({enough}) to say anything about other kinds" for by in few)]


def label(by: str, part: str) -> str:
    """What a part is called where its division is not named."""
    return f"{part} words" if by == WORDS else part


def difference(row: Fields) -> str:
    """A row's difference with its interval, where it has one."""
    show = partial(parse(row["measure"]).show, with_sign=True)
    return bracketed(row["difference"], row["low"], row["high"], show)


def verdicts(rows: pl.DataFrame) -> set[str]:
    """The words of all parts that were tested."""
    return set(chain.from_iterable(rows.filter(pl.col("queries") >= FEWEST).select("verdict").drop_nulls().iter_rows()))
