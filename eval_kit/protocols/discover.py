"""Which kinds of query a system loses, where nobody names the kinds (:mod:`eval_kit.stats.halves`)."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eval_kit import plots
from eval_kit.authors.opening import ReleaseSource, release_of
from eval_kit.divisions import FEW, FEWEST, HOLLOW, QUESTION_WORD, WORDS, Parts, divide, names_of
from eval_kit.errors import UserError, parameter
from eval_kit.measures.definitions import parse
from eval_kit.protocols import readings
from eval_kit.protocols.by_part import difference_of, signed, turned
from eval_kit.protocols.hanging import counted_groups, grouped
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import scores_of, with_measures
from eval_kit.release import Release
from eval_kit.results import Picture, Result, origin
from eval_kit.runs.given import GivenRun, GivenRuns, take
from eval_kit.sentences import counted
from eval_kit.stats.differences import difference
from eval_kit.stats.halves import PICKED, Picked, worst
from eval_kit.stats.kinds import kinds
from eval_kit.tables.table import ALPHA, Column, Table, laid_out, p_value

# of planted losses of 40 % in a kind half were named with 1,000 queries, and of 20 % a quarter (docs/discover.md)
FEW_QUERIES = 1_000
"""Queries below which hardly any kind can be shown."""
# no experiment chose these two: what fits into a row, and what one reads of a kind
_EXAMPLES = 3
_LISTED = 200
"""Queries of a kind that a page lists; the file of parts has all."""
_ROWS = {"kind": pl.String(), "half": pl.Int64()} | dict.fromkeys(("found", "difference", "low", "high"), pl.Float64())
_ROWS |= {"queries": pl.Int64()} | dict.fromkeys(("p_holm", "p_rest_holm", "detectable"), pl.Float64())
_ROWS |= {"loses": pl.Boolean(), "examples": pl.List(pl.String())}


@dataclass(frozen=True, repr=False)
class Discovery(Result):
    """The kinds that were picked in one half of the queries, and what the other half says of them.

    Attributes:
        rows: a ``kind`` each, the surest loss first: the ``half`` in which it was tested, the difference where it was
            ``found`` and in its ``queries`` of the tested half, with the interval (``low``, ``high``) and p after
            Holm's correction over all rows, of no difference and of none to the half's other queries (``p_rest_holm``);
            the loss that is found in 80 % of cases (``detectable``); whether it ``loses``; and the queries of it that
            lose most.
        queries: those of the tested halves: ``kind``, ``half``, ``query_id``, ``text``, ``before``, ``after``,
            ``difference``.
        systems: the one that is compared with, and the one that loses.
        measure: the first measure of the test sets.
        test_sets: those whose queries were looked at.
        searched: how many queries that is.
        looked_at: how many kinds.
        left_out: queries that a run lacks, or without a text.
        difference: the mean over the queries.
        provenance: of the scores, with the seed.
        decides: what makes it impossible to tell which kinds lose; empty if nothing does.
    """

    title = "Kinds of query that lose"

    rows: pl.DataFrame
    queries: pl.DataFrame
    systems: tuple[str, str]
    measure: str
    test_sets: list[str]
    searched: int
    looked_at: int
    left_out: int
    difference: float
    provenance: dict[str, Any]
    decides: str = ""

    @property
    def heading(self) -> str:
        """Both systems."""
        return f"Which kinds of query does {self.systems[1]} lose to {self.systems[0]}?"

    @property
    def subject(self) -> str:
        """The test sets."""
        return ", ".join(self.test_sets)

    def to_polars(self) -> pl.DataFrame:
        """The kinds."""
        return self.rows

    def parts(self) -> pl.DataFrame:
        """``query_id`` and ``part`` of each kind's queries in the half where it was tested, as a file for ``--by``.

        The half that picked a kind would repeat its luck on the same runs.
        """
        name = pl.format("{} (half {})", pl.col("kind").str.replace_all(r"\s+", " "), "half")
        return self.queries.select("query_id", part=name)

    def summary(self) -> list[str]:
        """The kinds that lose, how much of what was found is luck, and what so few queries cannot show."""
        before, after = self.systems
        if self.decides:
            return [f"Cannot tell which kinds {after} loses: {self.decides} decide. {readings.MENDS[self.decides]}."]
        lost = self.rows.filter("loses")
        more = lost.filter(pl.col("p_rest_holm") < ALPHA)
        named = (more if more.height else lost).group_by("kind", maintain_order=True)
        kinds = [f"{kind} ({'; '.join(map(self._shown, rows.to_dicts()))})" for (kind,), rows in named]
        than = "more than on other queries, on" if more.height else "not significantly more than on other queries, on"
        where = f"{after} loses to {before}, {than} {'; '.join(kinds)}."
        show = partial(parse(self.measure).show, with_sign=True)
        of_all = f"{self.searched:,} queries, {show(self.difference)} {self.measure} on all"
        said = [where if kinds else f"No kind of query loses significantly ({of_all})."]
        if self.rows.height:
            found, held = (show(_mean(self.rows[name])) for name in ("found", "difference"))
            picked = f"what was picked ({counted(self.rows.height, 'kind')})"
            said.append(
                f"In fresh queries {picked} differs by {held} (where it was found by {found}, part of it luck)."
            )
        if self.searched < FEW_QUERIES:
            said.append(f"With fewer than {FEW_QUERIES:,} queries, hardly any kind can be found.")
        return [sentence.replace(" -", " \u2212") for sentence in said]

    def _shown(self, row: dict[str, Any]) -> str:
        """The difference that held, for a sentence."""
        ends = difference_of(row | {"measure": self.measure}).replace("-", "\u2212")
        return f"{ends}, n = {row['queries']:,}"

    def tables(self) -> list[Table]:
        """A row a kind."""
        show = partial(parse(self.measure).show, with_sign=True)
        columns = [
            Column("kind of query", "heading", "kind"),
            Column("n", "number", "queries", ","),
            Column("found", "number", format=show),
            Column("held [95 % interval]", "number", lambda row: difference_of(row | {"measure": self.measure})),
            Column("p (Holm)", "number", "p_holm", p_value),
            Column("≠ rest", "number", "p_rest_holm", p_value),
            Column("would find", "number", "detectable", ".4f"),
            Column("queries that lose most", source=lambda row: "; ".join(row["examples"])),
        ]
        return [
            laid_out(
                self.rows, columns, block="kind", title=f"{self.measure} of {self.systems[1]} minus {self.systems[0]}"
            )
        ]

    def details(self) -> list[Table]:
        """The queries of each kind, those that lose most first."""
        show = parse(self.measure).show
        columns = [
            Column("query", source="text"),
            *(Column(name, "number", source, show) for name, source in self._sides()),
        ]
        tables = []
        for (kind, half), group in self.queries.group_by("kind", "half", maintain_order=True):
            shown = f", the {_LISTED} that lose most" * (group.height > _LISTED)
            tables.append(
                laid_out(
                    group.head(_LISTED),
                    columns,
                    title=f"{kind}: {group.height:,} queries of half {half}{shown}",
                    folded=True,
                )
            )
        return tables

    def _sides(self) -> list[tuple[str, str]]:
        return [(self.systems[0], "before"), (self.systems[1], "after"), ("Δ", "difference")]

    def figures(self) -> list[Picture]:
        """The differences that held, with their intervals."""
        if self.rows.is_empty():
            return []
        effects = [
            plots.Effect(row["kind"], row["difference"], row["low"], row["high"], row["queries"], row["queries"] < FEW)
            for row in self.rows.iter_rows(named=True)
        ]
        title = f"{self.measure} of {self.systems[1]} minus that of {self.systems[0]} by kind of query"
        caption = f"{title}, in the half that did not pick the kind, with 95 % intervals that hold together. {HOLLOW}"
        return [Picture(plots.forest(effects, f"difference in {self.measure}", title), caption)]

    def notes(self) -> list[str]:
        """What was looked at, and what was left out."""
        left_out = f"{counted(self.left_out, 'query')} that a run lacks, or without a text, left out"
        return [
            f"{self.looked_at:,} kinds of at least {FEWEST} queries in each half were looked at",
            *([left_out] if self.left_out else []),
        ]

    def method(self) -> list[str]:
        """How kinds were found and tested, and what they rest on."""
        return [
            f"Each half of the queries picks at most {PICKED} kinds that lose most against its other queries, and the "
            "other half tests them. A kind that both pick stands twice",
            "p and the 95 % intervals are two-sided t-tests over queries of the half that did not pick, corrected over "
            'all rows. "≠ rest" is the p that the kind equals the other queries of that half. "would find" is the '
            "smallest loss that is found in 80 % of cases",
            "Kinds are words, pairs of words, beginnings, clusters, lengths, question words and fields of the queries",
            origin(self.provenance),
        ]

    def content(self) -> dict[str, Any]:
        """The kinds and their queries."""
        about: dict[str, Any] = {"systems": self.systems, "measure": self.measure, "test_sets": self.test_sets}
        about |= {"searched": self.searched, "difference": self.difference}
        return super().content() | about | {"queries": self.queries.drop("text").to_dicts()}


def discover(
    runs: GivenRuns,
    release: ReleaseSource = None,
    pivot: GivenRun = None,
    *,
    measure: str | None = None,
    test_sets: Sequence[str] = (),
    groups: str | Parts | None = None,
    qrels: Path | None = None,
    queries: Path | None = None,
    seed: int = 0,
    allow_missing: bool = False,
) -> Discovery:
    """Find the kinds of query that the second of two runs loses to the first, without naming any.

    Args:
        runs: two, or one with a pivot; like ``release``, ``test_sets``, ``qrels``, ``queries`` and ``allow_missing``
            as for :func:`eval_kit.protocols.scoring.score`. The queries of test sets that share their first
            measure with the largest are looked at together.
        release: what they are scored on.
        pivot: the run that a single one is compared with, such as BM25's.
        measure: in place of the test sets' first.
        test_sets: names; by default all that both runs cover.
        groups: as for :func:`eval_kit.protocols.compare.compare`; no group is in both halves.
        qrels: judgements to score on, in place of a release.
        queries: the texts of their queries.
        seed: of the halves.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: not two runs, no test set that both cover, queries without texts, or what cannot be used.
    """
    opened = release_of(release, qrels, queries)
    first, second = take(pivot=[] if pivot is None else [pivot], runs=runs)
    both = [*first, *second]
    if len(both) != 2 or first == second:
        raise UserError(f"Two runs are compared, not {len(both)}", do=f"Give two runs, or one and {parameter('pivot')}")
    own = with_measures(opened.test_sets, [measure] if measure else ())
    scores = scores_of(both, opened, allow_missing=allow_missing, test_sets=own, only=test_sets)
    systems = both[0].name, both[1].name
    values, names, name = _values(scores, systems, opened)
    texts = pl.concat(map(opened.queries, names)).unique("query_id", keep="first")
    if not texts["text"].count():
        raise UserError("The texts of the queries are needed", do=f"Add {parameter('queries')} FILE")
    pairs = values.join(texts.drop_nulls("text"), on="query_id").filter("searched").sort("query_id").drop("searched")
    of_measure = parse(name)
    kindest = of_measure.sign * (pairs["best"] - pairs["worst"]).to_numpy()  # what ties may give the second run
    pairs = pairs.drop("best", "worst").with_columns(difference=pl.col("after") - pl.col("before"))
    known = kinds(pairs["text"], 2 * FEWEST, seed) | dict(_of_divisions(opened, pairs.select("query_id", "text")))
    greatest = of_measure.most(pairs.select("before", "after").to_numpy())
    gains = of_measure.sign * pairs["difference"].to_numpy()
    of_groups = grouped(opened, names, groups)
    one_group = of_groups.unique("query_id", keep="first").select("query_id", "group")
    together = pairs.join(one_group, on="query_id", how="left", maintain_order="left")["group"].to_numpy()
    pick = partial(worst, kinds=known, fewest=FEWEST, most=greatest, seed=seed, groups=together)
    found = pick(gains)
    lose = {(kind.name, kind.half) for kind in found if kind.loses}
    if (kindest != gains).any():  # a loss that another order of tied passages would undo is none
        lose &= {(kind.name, kind.half) for kind in pick(kindest) if kind.loses}
    frames = [_members(pairs, kind, of_measure.sign) for kind in found]
    rows = [
        _row(kind, frame, of_measure.sign) | {"loses": (kind.name, kind.half) in lose}
        for kind, frame in zip(found, frames, strict=True)
    ]
    empty = pairs.head(0).with_columns(kind=pl.lit(""), half=pl.lit(0, pl.Int64))
    members = pl.concat(frames or [empty])
    counts = {"searched": pairs.height, "looked_at": len(known), "left_out": values.height - pairs.height}
    ratio = difference(gains, greatest, together).ratio
    ratios = pl.DataFrame({"test_set": names, "ratio": [ratio] * len(names)})
    provenance = scores.provenance | {"seed": seed, "groups": counted_groups(of_groups, ratios)}
    return Discovery(
        pl.DataFrame(rows, _ROWS),
        members,
        systems,
        name,
        names,
        difference=_mean(pairs["difference"]),
        provenance=provenance,
        decides=readings.RANKS if readings.doubtful(scores.provenance["runs"], {}) else "",
        **counts,
    )


def _values(scores: Scores, systems: tuple[str, str], release: Release) -> tuple[pl.DataFrame, list[str], str]:
    """``query_id``, ``before`` (tied at ``worst``), ``after`` (at ``best``), whether both runs ``searched`` it.

    And of which test sets they are; and the measure.
    """
    first = {mean.test_set: mean.measure for mean in reversed(scores.means)}
    covered = [{mean.test_set for mean in scores.means if mean.run == system} for system in systems]
    shared = [name for name in first if name in covered[0] & covered[1]]
    if not shared:
        raise UserError(
            f"{systems[0]} and {systems[1]} have no test set in common", do="Compare runs of the same queries"
        )
    measure = first[max(shared, key=lambda name: len(release.test_sets[name].queries))]
    names = [name for name in release.test_sets if name in shared and first[name] == measure]
    values = scores.per_query_in_full().filter(pl.col("test_set").is_in(names), measure=pl.lit(measure))
    sides = [
        values.filter(run=pl.lit(system)).unique("query_id", keep="first").select("query_id", "searched", end, **side)
        for system, end, side in zip(
            systems, ("worst", "best"), ({"before": pl.col("value")}, {"after": pl.col("value")}), strict=True
        )
    ]
    both = sides[0].join(sides[1], on="query_id").with_columns(pl.col("searched") & pl.col("searched_right"))
    return both.drop("searched_right"), names, measure


def _of_divisions(release: Release, queries: pl.DataFrame) -> Iterator[tuple[str, Any]]:
    """Kinds by the parts of every division that the queries have without being told: fields, labels, lengths."""
    rows = queries.select("query_id").with_row_index("row")
    for name in (*names_of(release), WORDS, QUESTION_WORD):
        with suppress(UserError):  # none of these queries is in a part
            parts = divide(name, release, queries).parts.join(rows, on="query_id")
            for (part,), group in parts.group_by("part", maintain_order=True):
                yield f"{name}: {part}", np.sort(group["row"].to_numpy().astype(np.int64))


def _members(pairs: pl.DataFrame, kind: Picked, sign: int) -> pl.DataFrame:
    """The queries of a kind in the half that tested it, those that lose most first."""
    members = pairs[kind.rows].with_columns(kind=pl.lit(kind.name), half=pl.lit(kind.half, pl.Int64))
    return members.sort("difference", descending=sign < 0, maintain_order=True)


def _row(kind: Picked, members: pl.DataFrame, sign: int) -> dict[str, Any]:
    low, high = turned(kind.ends, sign)
    row = {"kind": kind.name, "half": kind.half, "found": signed(sign, kind.found), "queries": len(kind.rows)}
    row |= {"difference": signed(sign, kind.held.value), "low": low, "high": high, "p_holm": kind.p}
    row |= {"p_rest_holm": kind.p_rest, "detectable": kind.detectable}
    return row | {"examples": members["text"].head(_EXAMPLES).to_list()}


def _mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean()) if len(values) else 0.0
