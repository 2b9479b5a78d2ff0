"""The scores of runs: every mean with its n, its missing queries and its ties, and what readers must know about it."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from eval_kit.measures.definitions import parse
from eval_kit.results import Picture, Result, origin
from eval_kit.runs import contamination
from eval_kit.runs.contamination import Seen
from eval_kit.sentences import and_more, counted, in_table, joined
from eval_kit.tables.table import Column, Fields, Source, Table, Value, ends_shown, laid_out, of, side_by_side, sides

if TYPE_CHECKING:  # brings numpy, which plain scores need not
    from eval_kit.protocols.panel import Standing

_COLUMNS = {
    **dict.fromkeys(("run", "test_set", "measure"), pl.String()),
    "value": pl.Float64(),
    **dict.fromkeys(("queries", "missing", "tied"), pl.Int64()),
    **dict.fromkeys(("worst", "best", "low", "high"), pl.Float64()),
    "trained_on": contamination.COLUMN,
}


_MOST_TEST_SETS = 4
_MOST_COLUMNS = 10
"""Of figures in a paper's table; a test set is never divided."""
IN_FULL = ("searched", "worst", "best", "missing", "trained_on")
"""What :meth:`Scores.per_query_in_full` adds."""


@dataclass(frozen=True)
class Mean:
    """One mean: of ``measure`` over the ``queries`` of ``test_set`` (its fields are those of scores.schema.json)."""

    run: str
    test_set: str
    measure: str
    value: float
    queries: int
    missing: int
    tied: int
    worst: float | None
    best: float | None
    per_query: pl.DataFrame
    trained_on: Seen = Seen.UNKNOWN
    low: float | None = None
    high: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The entry of the scores document."""
        names = ("run", "test_set", "measure", "value", "queries", "missing", "tied", "trained_on")
        entry = {name: getattr(self, name) for name in names}
        ends = {name: getattr(self, name) for name in ("worst", "best", "low", "high")}
        return entry | {name: end for name, end in ends.items() if end is not None}


@dataclass(frozen=True, repr=False)
class Scores(Result):
    """The means in the order of the runs, and what they were computed from.

    ``standings`` are the places that the runs can have among known systems, and ``over_test_sets`` their means over six
    test sets or more, if that was asked for.
    """

    title = "Scores"

    means: list[Mean]
    provenance: dict[str, Any]
    standings: "Sequence[Standing]" = field(default=(), kw_only=True)
    over_test_sets: Sequence[str] = field(default=(), kw_only=True)

    def content(self) -> dict[str, Any]:
        """The document of scores.schema.json."""
        panel = {"panel": [each.as_json() for each in self.standings]} if self.standings else {}
        return {"measures": list(map(Mean.as_json, self.means)), **panel}

    def to_polars(self) -> pl.DataFrame:
        """One row per figure, with the fields of :class:`Mean`.

        ``worst`` and ``best`` are null where no order of tied passages matters.
        """
        return pl.DataFrame(list(map(Mean.as_json, self.means)), _COLUMNS, infer_schema_length=None)

    def tables(self) -> list[Table]:
        """A table for each group of test sets that share their measures, with a row for each test set and run.

        The best of several runs on a test set is bold.
        """
        frame = self.to_polars()
        best = best_shown(frame)
        by_test_set = pl.concat(frame.partition_by("test_set", maintain_order=True))
        groups: dict[tuple[str, ...], list[Fields]] = {}
        for row in side_by_side(by_test_set, ["test_set", "run", "queries", "trained_on"], "measure"):
            groups.setdefault(tuple(each["measure"] for each in sides(row)), []).append(row)
        tables = []
        for measures, rows in groups.items():
            columns = [Column("test set", source="test_set", wrap="never")]
            columns.append(Column("run", source=_run, wrap="anywhere", min_width=8))
            columns.append(Column("queries", "number", format=",", wrap="anywhere", min_width=7))
            for measure in measures:
                value = of(measure, partial(value_shown, best))
                columns.append(Column(measure, "number", value, wrap="anywhere", min_width=7))
            tables.append(laid_out(rows, columns))
        return tables

    def printed(self) -> list[Table]:
        """A system a row, a measure of a test set a column, and no intervals: one table, if a page has room for it."""
        frame = self.to_polars()
        without_test_set = pl.col("run").str.strip_suffix(pl.format(".{}", "test_set"))
        rows = frame.with_columns(system=without_test_set)
        if rows.select("system", "test_set", "measure").is_duplicated().any():
            rows = frame.with_columns(system="run")
        test_sets = rows["test_set"].unique(maintain_order=True).to_list()
        on = joined(test_sets) if len(test_sets) <= _MOST_TEST_SETS else counted(len(test_sets), "test set")
        return printed_of(rows, partial(value_shown, best_shown(frame)), f"{self.title} on {on}")

    @property
    def heading(self) -> str:
        """The runs and, if it is one, the test set."""
        runs = list(dict.fromkeys(mean.run for mean in self.means))
        names = ", ".join(runs[:4]) + and_more(len(runs[4:]))
        test_sets = list(dict.fromkeys(mean.test_set for mean in self.means))
        return f"{names} on {test_sets[0] if len(test_sets) == 1 else f'{len(test_sets)} test sets'}"

    def summary(self) -> list[str]:
        """The best runs by the first measure of each test set; of a single run its value."""
        of_test_sets: dict[str, list[Mean]] = {}
        for mean in self.means:
            of_test_set = of_test_sets.setdefault(mean.test_set, [])
            if not of_test_set or of_test_set[0].measure == mean.measure:
                of_test_set.append(mean)
        said = list(map(_best_of, of_test_sets.values()))
        said[_MOST_TEST_SETS:] = in_table(len(said[_MOST_TEST_SETS:]), "test set")
        return [*said, *self.over_test_sets, *map(str, self.standings)]

    def figures(self) -> list[Picture]:
        """Bars of the first measure of each test set, one picture a measure."""
        from eval_kit import plots  # numpy, and all that a page alone needs

        groups: dict[str, list[tuple[str, float, str]]] = {}
        first = {mean.test_set: mean.measure for mean in reversed(self.means)}
        several = len({mean.run for mean in self.means}) > 1
        places = {name: place for place, name in enumerate(first)}
        for mean in sorted(self.means, key=lambda mean: -places[mean.test_set]):
            if mean.measure == first[mean.test_set]:
                name = f"{mean.test_set}, {mean.run}" if several else mean.test_set
                groups.setdefault(mean.measure, []).append((name, mean.value, parse(mean.measure).show(mean.value)))
        return [
            Picture(plots.bars(rows, measure, measure), f"{measure} on each test set.")
            for measure, rows in groups.items()
        ]

    def method(self) -> list[str]:
        """What the means rest on."""
        of_intervals = "[ ]: 95 % bootstrap interval of the mean, over queries"
        return [*([of_intervals] if any(mean.low is not None for mean in self.means) else []), origin(self.provenance)]

    def on_shared_queries(self, group: Callable[[str], Hashable]) -> "Scores | None":
        """The same, of test sets that a run lacks queries of on those that all runs of its group have.

        None where no run lacks any, or none are shared. ``group`` is of a run's name.
        """
        shared: dict[tuple[Hashable, str], set[str]] = {}
        for mean in self.means:
            ids = set(mean.per_query.filter("searched")["query_id"])
            key = group(mean.run), mean.test_set
            shared[key] = shared.get(key, ids) & ids
        if not any(mean.missing for mean in self.means) or not all(shared.values()):
            return None
        of_queries = (pl.col("query_id").is_in(shared[group(mean.run), mean.test_set]) for mean in self.means)
        kept = [mean.per_query.filter(among) for mean, among in zip(self.means, of_queries, strict=True)]
        means = [replace(mean, per_query=rows) for mean, rows in zip(self.means, kept, strict=True)]
        return Scores(means, self.provenance)

    def per_query(self) -> pl.DataFrame:
        """``run``, ``test_set``, ``measure``, ``query_id``, ``value``: one row per query and measure."""
        return self.per_query_in_full().drop(*IN_FULL)

    def per_query_in_full(self) -> pl.DataFrame:
        """The same, with :data:`IN_FULL`.

        ``searched`` is whether the run holds the query; ``worst`` and ``best`` are the values that orders of tied
        passages give; ``missing`` is how many queries of the test set the run lacks; ``trained_on``, whether its
        model was trained on any.
        """
        return pl.concat(
            mean.per_query.select(
                pl.lit(mean.run).alias("run"),
                pl.lit(mean.test_set).alias("test_set"),
                pl.lit(mean.measure).alias("measure"),
                "query_id",
                "value",
                "searched",
                *(pl.col("value" if mean.worst is None else end).alias(end) for end in ("worst", "best")),
                pl.lit(mean.missing, pl.Int64).alias("missing"),
                pl.lit(mean.trained_on, contamination.COLUMN).alias("trained_on"),
            )
            for mean in self.means
        )


def _best_of(means: Sequence[Mean]) -> str:
    """A sentence on the best of some means of one measure and test set; of several, a tie has no winner."""
    measure = parse(means[0].measure)
    best = measure.show(measure.best(mean.value for mean in means))
    names = [mean.run for mean in means if measure.show(mean.value) == best]
    place = f"{means[0].test_set} ({counted(means[0].queries, 'query')})"
    rank = f" {'tie as' if names[1:] else 'is'} the best of {len(means)} runs" if means[1:] else ""
    return f"{joined(names)}{rank}: {measure.name} {best} on {place}."


def best_shown(means: pl.DataFrame) -> dict[tuple[str, str], str]:
    """The best of several means by test set and measure, as it is shown."""
    best = {}
    for (test_set, measure), group in means.group_by("test_set", "measure", maintain_order=True):
        if group.height > 1:
            of_group = parse(str(measure))
            best[str(test_set), str(measure)] = of_group.show(of_group.best(group["value"]))
    return best


def value_shown(best: Mapping[tuple[str, str], str], row: Fields) -> Value:
    """The mean of a row as it is shown, bold if none of several on the same test set is better."""
    show = parse(row["measure"]).show
    shown, ends = show(row["value"]), ends_shown(row, show, between=", ") if "low" in row else None
    return Value(
        shown,
        below=f"[{ends}]" if ends and "difference" not in row else "",
        bold=shown == best.get((row["test_set"], row["measure"])),
    )


def printed_of(rows: pl.DataFrame, cell: Source, title: str) -> list[Table]:
    """A table of a paper: a ``system`` a row, a ``measure`` of a ``test_set`` a column; several if it is too wide."""
    at = pl.format("{} {}", "test_set", "measure")
    lines = side_by_side(rows.with_columns(at=at), ["system"], "at")
    places = rows.unique(["test_set", "measure"], keep="first", maintain_order=True)
    parts: list[list[Column]] = [[]]
    for (test_set, queries), of_set in places.group_by("test_set", "queries", maintain_order=True):
        sources = {name: of(f"{test_set} {name}", cell) for name in of_set["measure"]}
        group = f"{test_set}, n = {queries:,}"
        columns = [Column(name, "number", source, none="", group=group) for name, source in sources.items()]
        if parts[-1] and len(parts[-1] + columns) > _MOST_COLUMNS:
            parts.append([])
        parts[-1] += columns
    return [laid_out(lines, [Column("Model", "heading", system_of_sides), *part], title=title) for part in parts]


def system_of_sides(row: Fields) -> Value:
    """The system of a row's sides, marked if one of its models was trained on queries that it is scored on."""
    return Value(row["system"], mark=max(contamination.mark(each["trained_on"]) for each in sides(row)))


def _run(row: Fields) -> Value:
    return Value(row["run"], mark=contamination.mark(row["trained_on"]))
