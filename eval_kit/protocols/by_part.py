"""Figures by part of a division: means of runs, and paired differences between systems, over queries and over kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import polars as pl

from eval_kit.divisions import FEW, FEWEST, OTHERS, WHOLE, WORDS, Division, Parts, divide
from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.protocols.scores import Scores
from eval_kit.release import Release
from eval_kit.sentences import counted
from eval_kit.stats.differences import CANNOT_TELL, NOT_WORSE, UNCHANGED, WORSE, Difference, differences, verdict
from eval_kit.stats.losses import correct, simultaneous
from eval_kit.stats.parts import FEWEST_PARTS, heterogeneity, within
from eval_kit.tables.table import (
    ALPHA,
    Column,
    Fields,
    Table,
    Value,
    bracketed,
    laid_out,
    of,
    p_said,
    p_value,
    side_by_side,
)

_MEANS = dict.fromkeys(("test_set", "by", "part", "run", "measure"), pl.String()) | {
    "queries": pl.Int64(), "value": pl.Float64()
}  # fmt: skip
RANGE = r"^(quarter )?\d[\d.,:to +-]*$"
"""Parts that are ranges of numbers, or dates, in whose order they are drawn."""
NOT_TESTED = f"fewer than {FEWEST} queries: not tested"
ORDER = (WORSE, CANNOT_TELL, UNCHANGED, NOT_WORSE)
"""Verdicts in the order of tables."""
NO_PART = "queries in no part"
KINDS = "queries of such kinds"
DIFFERENCES = (
    dict.fromkeys(("test_set", "measure", "system", "by", "part"), pl.String())
    | dict.fromkeys(("queries", "unsearched", "helped", "hurt", "needed"), pl.Int64())
    | dict.fromkeys(("baseline", "value", "difference", "low", "high", "p", "p_holm"), pl.Float64())
    | dict.fromkeys(("pooled", "detectable", "p_loses", "p_loses_holm", "ratio"), pl.Float64())
    | {"verdict": pl.String(), "is_beside": pl.Boolean(), "decides": pl.String(), "on_shared": pl.Float64()}
)
"""Of a part: its queries without those that neither run searched (``unsearched``), how many of them are ``helped`` and
``hurt``, both means, the difference with p over its queries; of parts that are tested, p after Holm's correction over
all parts of all divisions, systems and test sets, and the interval that holds together with theirs in 95 % of cases;
``pooled``, drawn towards the mean of the parts, for pictures alone; the loss found in 80 % of cases; with a margin, the
p of losing that much, the verdict, and the queries ``needed`` for "not worse"; the ``ratio`` of its error to that of
queries that do not hang together (:mod:`eval_kit.stats.groups`). With a margin, what stands beside the parts
(``is_beside``): all small parts as one, queries in no part, all queries."""
OVER_PARTS = (
    dict.fromkeys(("test_set", "measure", "system", "by"), pl.String())
    | dict.fromkeys(("parts", "queries"), pl.Int64())
    | dict.fromkeys(("difference", "low", "high", "p_parts", "p_parts_holm"), pl.Float64())
    | {"why": pl.String()}
)
"""Over all parts: the p of parts that differ by chance alone (F), where queries are in one part each; and what is
expected of :data:`KINDS`, with its 95 % interval, or ``why`` nothing is said of them."""


def divisions(
    by: Sequence[str | Parts], release: Release, test_sets: Sequence[str], training: pl.DataFrame | None = None
) -> dict[str, list[Division]]:
    """The divisions of each test set that has queries in one: by test set."""
    found: dict[str, list[Division]] = {}
    for place, each in enumerate(by):
        if isinstance(each, str) and any(each == other for other in by[:place] if isinstance(other, str)):
            continue  # named twice
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
        scarce: the divisions that most queries are in no part of.
    """

    parts: pl.DataFrame
    divisions: Mapping[str, str]
    remarks: Sequence[str]
    scarce: Sequence[str]

    def summary(self) -> list[str]:
        """As of the scores; and of how few queries a division says something."""
        return [*super().summary(), *self.scarce]

    def tables(self) -> list[Table]:
        """The means over all queries, then those of each part."""
        return super().tables() + _tables_of_means(self.parts)

    def printed(self) -> list[Table]:
        """One table of all queries, then those of each part."""
        return super().printed() + _tables_of_means(self.parts)

    def notes(self) -> list[str]:
        """What is in no part."""
        return [*self.remarks]

    def method(self) -> list[str]:
        """As of the scores; and what is small."""
        return [f"\u00b7 fewer than {FEW} queries", *super().method()]

    def content(self) -> dict[str, Any]:
        """The document of scores.schema.json, with the means of parts as ``parts``, and the ``divisions``."""
        return super().content() | {"parts": self.parts.to_dicts(), "divisions": dict(self.divisions)}


def scores_by_part(
    scores: Scores, by: Sequence[str | Parts], release: Release, training: pl.DataFrame | None = None
) -> ScoresByPart:
    """The means of each part, besides those over all queries.

    Args:
        scores: from :func:`eval_kit.protocols.scoring.score`.
        by: as :func:`eval_kit.divisions.divide` takes them.
        release: the one that was scored on.
        training: for the divisions ``distance`` and ``leaked``.
    """
    covered = list(dict.fromkeys(mean.test_set for mean in scores.means if mean.test_set in release.test_sets))
    of_test_sets = divisions(by, release, covered, training)
    of_parts = means(scores.per_query(), of_test_sets)
    remarks, few = list(remarks_on(of_test_sets, release)), list(scarce(of_test_sets, release))
    of_runs = scores.means, scores.provenance
    return ScoresByPart(*of_runs, of_parts, sources(of_test_sets), remarks, few, standings=scores.standings)


def sources(of_test_sets: Mapping[str, Sequence[Division]]) -> dict[str, str]:
    """Where each division comes from, by its name."""
    return {each.name: each.source for each in chain.from_iterable(of_test_sets.values())}


def remarks_on(of_test_sets: Mapping[str, Sequence[Division]], release: Release) -> Iterator[str]:
    """Where divisions come from, and a line for each that leaves at most half of the queries of a test set out."""
    yield from (f"{name}: {source}" for name, source in sources(of_test_sets).items() if source != name)
    for test_set, division, inside, queries in _inside(of_test_sets, release):
        if queries / 2 <= inside < queries:
            yield f"{queries - inside:,} of the {queries:,} queries of {test_set} are in no part of {division.name}"


def scarce(of_test_sets: Mapping[str, Sequence[Division]], release: Release) -> Iterator[str]:
    """A sentence for each division that leaves more than half of the queries of a test set out."""
    for test_set, division, inside, queries in _inside(of_test_sets, release):
        if inside < queries / 2:
            of_label = f"have the label {division.name}, which is that of {division.label_of}"
            which = of_label if division.label_of else f"are in a part of {division.name}"
            yield f"Only {inside:,} of the {queries:,} queries of {test_set} {which}."


def _inside(
    of_test_sets: Mapping[str, Sequence[Division]], release: Release
) -> Iterator[tuple[str, Division, int, int]]:
    """Of each test set and division, how many queries are in a part, and how many there are."""
    for test_set, of_test_set in of_test_sets.items():
        for division in of_test_set:
            inside = division.parts["query_id"].n_unique()
            yield test_set, division, inside, len(release.test_sets[test_set].queries)


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
    folded = together.with_columns(part=pl.lit(_together(names)), is_folded=True)
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
        values: ``system``, ``test_set``, ``measure``, ``query_id``, ``value``, ``searched``.
        systems: the baseline first.
        of_test_sets: from :func:`divisions`.
        margin: the loss that a verdict is about, in the measure's unit.

    Returns:
        As :data:`DIFFERENCES` and as :data:`OVER_PARTS`.
    """
    families: dict[str, list[dict[str, Any]]] = {}
    over: list[dict[str, Any]] = []
    base, *others = systems
    why_no_kinds = {
        (test_set, division.name): division.why_no_kinds(of_test_set)
        for test_set, of_test_set in of_test_sets.items()
        for division in of_test_set
    }
    for (test_set, measure), group in values.group_by("test_set", "measure", maintain_order=True):
        of_measure = parse(str(measure))
        greatest = of_measure.most(group["value"].to_numpy())
        columns = {str(name): each for (name,), each in group.group_by("system", maintain_order=True)}
        of_test_set = of_test_sets.get(str(test_set), ())
        for division, system in ((d, s) for d in of_test_set for s in others):
            if base not in columns or system not in columns:
                continue
            first = columns[base].select("query_id", "searched", "group", baseline="value")
            both = first.join(columns[system].select("query_id", "value", "searched"), on="query_id", suffix="_after")
            members = division.parts.join(both, on="query_id", maintain_order="left")
            gain = of_measure.sign * (pl.col("value") - pl.col("baseline"))
            members = members.with_columns(gain=gain)
            keys = {"test_set": test_set, "measure": measure, "system": system, "by": division.name}
            of_parts, of_all = _in_parts(members, of_measure.sign, greatest, why_no_kinds[str(test_set), division.name])
            if margin is not None and division.name != WHOLE:
                beside = _beside(members, both.with_columns(gain=gain))
                more, _ = _in_parts(beside, of_measure.sign, greatest, division.name)
                of_parts += [row | {"is_beside": True} for row in more]
            families.setdefault(str(measure), []).extend(keys | row for row in of_parts)
            over += [keys | of_all] if of_all and division.name != WHOLE else []
    rows = list(chain.from_iterable(families.values()))
    for measure, family in families.items():
        tested = [row for row in family if row["queries"] >= FEWEST]
        # all queries stand beside the parts of each division, and are one test
        keys_of = [(row["test_set"], row["system"], row["by"] * (row["part"] != WHOLE), row["part"]) for row in tested]
        once = dict(zip(reversed(keys_of), reversed(tested), strict=True))
        _correct(list(once.values()), margin)
        for key, row in zip(keys_of, tested, strict=True):
            row |= once[key] | {"by": row["by"]}
        correct([row for row in over if row["measure"] == measure], "p_parts")
    frame = pl.DataFrame(rows, DIFFERENCES, infer_schema_length=None)
    return frame, pl.DataFrame(over, OVER_PARTS, infer_schema_length=None)


def _beside(members: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """What a gate tests beside the parts, so that no query escapes it, as members of parts of their own.

    They are the parts of fewer than :data:`FEWEST` queries together, the queries in no part, and all.
    """
    searched = members.filter(pl.col("searched") | pl.col("searched_after"))
    small = searched.filter(pl.len().over("part") < FEWEST)
    names = small["part"].unique(maintain_order=True)
    frames = [
        small.unique("query_id", keep="first", maintain_order=True).with_columns(part=pl.lit(_together(names))),
        every.join(members, on="query_id", how="anti", maintain_order="left").with_columns(part=pl.lit(NO_PART)),
        every.with_columns(part=pl.lit(WHOLE)),
    ]
    return pl.concat([frame.select(members.columns) for frame in frames])


def _together(names: pl.Series) -> str:
    """What small parts are called together."""
    return str(names[0]) if len(names) == 1 else f"{OTHERS} ({len(names)} parts)"


def _in_parts(
    members: pl.DataFrame, sign: int, greatest: float, why: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of one system, test set, measure and division, each with its ``figure``; and that over all parts.

    ``members`` has part, query_id, baseline, value, gain, group, and whether each run searched the query.
    """
    unsearched = ~(pl.col("searched") | pl.col("searched_after"))
    grouped = members.group_by("part", maintain_order=True)
    left_out = dict(grouped.agg(unsearched.sum()).iter_rows())
    members = members.filter(~unsearched)
    if members.is_empty():
        return [], {}
    names = members["part"].unique(maintain_order=True)
    index = members["part"].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    once = members.unique("query_id", keep="first", maintain_order=True)["gain"].to_numpy()
    gains = members["gain"].to_numpy()
    groups = members["group"].to_numpy() if members["group"].is_duplicated().any() else None
    of_parts, _ = differences(gains, index, len(names), once, greatest, groups)
    grouped = members.group_by("part", maintain_order=True)
    # counted apart: beside a count, polars takes the mean in another order, whose last digit differs
    levels = grouped.agg(pl.col("baseline", "value").mean()).with_columns(queries=grouped.len()["len"].cast(pl.Int64))
    large = levels["queries"].to_numpy() >= FEWEST
    tested = [each for each, enough in zip(of_parts, large, strict=True) if enough and each.error is not None]
    figures = [(each.value, each.error, each.queries) for each in tested]
    is_divided = len(members) == len(once)
    found = heterogeneity(*np.array(figures, np.float64).T) if is_divided and len(figures) > 1 else None
    if not why and len(tested) < FEWEST_PARTS:
        why = f"fewer than {FEWEST_PARTS} parts with {FEWEST} queries each"
    elif not why and not found:
        why = "no query differs from the others of its part"
    kinds = None if why else found
    noise = within(gains, gains, index)
    rows = []
    for row, of_part in zip(levels.to_dicts(), of_parts, strict=True):
        row |= {"difference": signed(sign, of_part.value), "helped": of_part.helped, "hurt": of_part.hurt}
        row |= {"unsearched": left_out[row["part"]], "figure": of_part, "sign": sign, "ratio": of_part.ratio}
        if row["queries"] >= FEWEST:
            row["p"] = of_part.p
        if kinds is not None:
            share = kinds.spread**2 / ((kinds.spread**2 + noise / row["queries"]) or 1.0)
            row["pooled"] = sign * kinds.value + share * (row["difference"] - sign * kinds.value)
        rows.append(row)
    over = {"parts": len(figures), "queries": len(once), "p_parts": found and found.p_q, "why": why}
    low, high = turned(kinds.interval, sign) if kinds else (None, None)
    return rows, over | {"difference": signed(sign, kinds.value) if kinds else None, "low": low, "high": high}


def signed(sign: int, value: float | None) -> float | None:
    """A difference of a gain, or the other way round, without a negative zero."""
    return None if value is None else sign * value + 0.0


def turned(ends: tuple[float, float] | tuple[None, None], sign: int) -> tuple[float | None, float | None]:
    """The ends of the interval of a difference, of those of a gain, or the other way round."""
    low, high = (signed(sign, end) for end in ends[::sign])
    return low, high


def hold_together(family: Sequence[dict[str, Any]]) -> None:
    """Give each row of a family of tests, which has its ``figure`` and ``sign``, ``low``, ``high`` and ``p_holm``."""
    for row, (ends, p) in zip(family, simultaneous([row["figure"] for row in family]), strict=True):
        low, high = turned(ends, row["sign"])
        row |= {"low": low, "high": high, "p_holm": p}


def _correct(family: Sequence[dict[str, Any]], margin: float | None) -> None:
    """Give rows that are tested together intervals and p that hold together; with a margin also verdicts."""
    figures: list[Difference] = [row["figure"] for row in family]
    hold_together(family)
    for row, figure in zip(family, figures, strict=True):
        row["detectable"] = figure.detectable(len(family)) if margin is None else figure.detectable_loss(len(family))
        if margin is not None:
            row["p_loses"] = figure.p_loses(margin)
            row["needed"] = figure.needed(margin, len(family)) if margin else None
    if margin is not None:
        correct(family, "p_loses")
        for row, figure in zip(family, figures, strict=True):
            row["verdict"] = verdict(row["p_holm"], row["p_loses_holm"], figure.value or 0.0, figure.differ)


def tables_of_differences(rows: pl.DataFrame, over: pl.DataFrame, with_verdict: bool) -> list[Table]:
    """A table for each test set, measure and division: a row a part and system, then the lines over all parts.

    Parts stand in the order of the pictures; with verdicts, the rows that fail come first, the greatest loss first.
    """
    tables = []
    for key, group in rows.group_by("test_set", "measure", "by", maintain_order=True):
        test_set, name, by = map(str, key)
        show = parse(name).show
        columns = [
            Column(by, source=lambda row: row["part"] or KINDS),
            Column("system", shown=rows["system"].n_unique() > 1),
            Column("verdict", source=_verdict, wrap="never", shown=with_verdict),
            Column("n", "number", _count),
            Column("baseline", "number", format=show, none="", spare=True),
            Column("value", "number", format=show, none=""),
            Column("Δ [95 % interval]", "number", difference_of),
            Column("+/\u2212/=", "number", _helped, spare=True),
            Column("p (Holm)", "number", _p_of_part),
        ]
        group = in_order(group)
        if with_verdict:
            place = pl.col("verdict").replace_strict(ORDER, range(len(ORDER)), default=None, return_dtype=pl.Int64)
            group = shown(group).sort(place, _gain(group), nulls_last=True, maintain_order=True)
        of_parts = _folded(group, ["system", "measure"], ["baseline", "value", "difference"])
        of_kinds = over.filter(test_set=pl.lit(test_set), measure=pl.lit(name), by=pl.lit(by)).drop_nulls("difference")
        lines = pl.concat([of_parts, of_kinds.drop("parts", "why", "p_parts", "p_parts_holm")], how="diagonal")
        lines = lines.with_columns(is_over=pl.col("part").is_null())
        title = f"{test_set}, {name}{f', by {by}' * (by != WHOLE)}"
        tables.append(laid_out(lines, columns, block="is_over", title=title))
    return tables


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """The parts of each system, the greatest gain first; ranges of numbers in their own order.

    Drawn towards each other (``pooled``), parts of few queries do not lead by chance; a gate's are tested together.
    """
    if rows["part"].str.contains(RANGE).all():
        return rows
    gain = _gain(rows) if rows["verdict"].count() else _gain(rows, "pooled")
    first = (pl.col("system").rle_id(), pl.col("is_beside").is_not_null())
    return rows.sort(*first, gain, descending=[False, False, True], maintain_order=True)


def _gain(rows: pl.DataFrame, *drawn: str) -> pl.Expr:
    return parse(rows["measure"][0]).sign * pl.coalesce(*drawn, "difference")


def shown(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a gate; small parts are tested together there."""
    return rows.filter((pl.col("queries") >= FEWEST) | pl.col("is_beside")) if rows["is_beside"].any() else rows


def _p_of_part(row: Fields) -> Value | str:
    """The p of a part that is tested, or that how the runs are read decides; nothing stands where none could."""
    return Value(p_value(row["p_holm"]), mark="?" if row["decides"] else "") if row["is_folded"] is False else ""


def _helped(row: Fields) -> str:
    """How many queries got better, worse, and neither."""
    if row["is_folded"] is not False:
        return ""
    return f"{row['helped']:,}/{row['hurt']:,}/{row['queries'] - row['helped'] - row['hurt']:,}"


TONES: dict[str, Literal["good", "bad", "open"]] = {
    WORSE: "bad", CANNOT_TELL: "open", UNCHANGED: "good", NOT_WORSE: "good"
}  # fmt: skip
"""The classes of verdicts, whose texts are coloured on a page."""


def _verdict(row: Fields) -> Value | str | None:
    if row["is_folded"]:
        return NOT_TESTED
    return Value(row["verdict"], word=TONES[row["verdict"]]) if row["verdict"] else None


def notes_of(rows: pl.DataFrame, over: pl.DataFrame) -> list[str]:
    """What is left out of parts, whether parts differ, and why nothing is said of other kinds."""
    notes = []
    if unsearched := max(rows["unsearched"].to_list(), default=0):
        notes.append(f"Parts leave out up to {counted(unsearched, 'query')} that neither run searched")
    for row in over.drop_nulls("p_parts_holm").iter_rows(named=True):
        about = f"{row['system']}, {row['test_set']}, {row['measure']}, by {row['by']}"
        differ = "differ" if row["p_parts_holm"] < ALPHA else "are not shown to differ"
        notes.append(f"{about}: parts {differ} by more than chance ({p_said(row['p_parts_holm'])})")
    silent = over.filter(pl.col("why") != "").unique(["by", "why"], maintain_order=True)
    return [
        *notes,
        *(f"{by}: {why}, so nothing is said about other kinds" for by, why in silent.select("by", "why").rows()),
    ]


def method_of(over: pl.DataFrame) -> list[str]:
    """How parts were tested, and what the lines over all of them claim."""
    notes = [f"· fewer than {FEW} queries", "+/\u2212/= are the queries that got better, worse, and neither"]
    if over.is_empty():
        return notes
    return [
        *notes,
        "In parts: t-tests over queries. Their 95 % intervals hold together over all tested parts, systems and test "
        "sets, and p is after Holm's correction over them. Whether parts differ is tested by F (Brown and Forsythe)",
        f'"{KINDS}": parts are random too. Its interval is uncorrected',
    ]


def label(by: str, part: str) -> str:
    """What a part is called where its division is not named."""
    return f"{part} words" if by == WORDS else part


def difference_of(row: Fields) -> str:
    """A row's difference with its interval, where it has one."""
    show = partial(parse(row["measure"]).show, with_sign=True)
    return bracketed(row["difference"], row["low"], row["high"], show)
