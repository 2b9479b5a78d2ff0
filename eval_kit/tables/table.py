"""A table that can go to a terminal, a page, Markdown or LaTeX: declared columns over rows (:func:`laid_out`).

Texts are unescaped: each renderer escapes them, so that names from elsewhere cannot break a format. Numbers have an
ASCII minus sign, and ``-`` alone stands for a number that does not exist.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Literal

import polars as pl


@dataclass(frozen=True)
class LossBar:
    """A relative loss with its 95 % interval, to be drawn; ``harm`` is 1 or -1, the sign of a harmful one."""

    loss: float | None
    low: float | None
    high: float | None
    harm: int = 1


@dataclass(frozen=True)
class Value:
    """The content of one column of one row.

    Attributes:
        text: on one line.
        mark: behind the text, such as ``°``.
        below: a second, quieter line.
        bold: the best of several.
        word: the class of a verdict, ``good``, ``bad`` or ``open``, whose text is coloured on a page.
        shaded: set apart from the row's other cells.
        style: of the text in a terminal, as rich names it.
        tooltip: on a page.
        sort: the number that a page sorts by.
        bar: drawn below the text on a page, all of a table on one scale.
    """

    text: str
    mark: str = ""
    below: str = ""
    bold: bool = False
    shaded: bool = False
    word: Literal["", "good", "bad", "open"] = ""
    style: str = ""
    tooltip: str = ""
    sort: float | None = None
    bar: LossBar | None = None


type Fields = Mapping[Any, Any]
"""A row of a frame, by column."""
type Source = str | tuple[str, ...] | Callable[[Any], Any]
type Format = str | Callable[[Any], str]


@dataclass(frozen=True)
class Column:
    """A column: its header, what its cells hold, and how they are set.

    Attributes:
        name: the header.
        kind: ``number`` is aligned right; ``heading`` names the rows, ``label`` what their numbers are.
        source: a field of the rows, by default of the column's name, or a function of a row; what it gives is the
            cell, or a number to write.
        format: how a number is written: a format specification, or a function.
        none: what stands for one that does not exist.
        group: a header above all neighbouring columns with the same group.
        wrap: where a terminal may break its lines.
        min_width: in a terminal.
        style: in a terminal, as rich names it.
        beside_last: never parted from the column before it; for a value's interval.
        shown: whether it is there at all.
        spare: left out of a terminal that is too narrow for all columns.
    """

    name: str
    kind: Literal["text", "number", "heading", "label"] = "text"
    source: Source = ""
    format: Format = ""
    none: str = "-"
    group: str = ""
    wrap: Literal["words", "anywhere", "never"] = "words"
    min_width: int | None = None
    style: str = ""
    beside_last: bool = False
    shown: bool = True
    spare: bool = False

    @property
    def header(self) -> str:
        """The name after its group's, for where both share one line."""
        return f"{self.group} {self.name}" if self.group else self.name

    def cell(self, row: Fields) -> "Value | str":
        """The cell of a row."""
        value = self.source(row) if callable(self.source) else row[self.source or self.name]
        if isinstance(value, (Value, str)):  # laid out already: a number with its mark, a name
            return value
        if value is None:
            return self.none if self.kind == "number" else ""
        return self.format(value) if callable(self.format) else format(value, self.format)


def text_columns(*names: str, **settings: Any) -> list[Column]:
    """Columns of text; ``settings`` are those of :class:`Column` that they share."""
    return [Column(name, **settings) for name in names]


def number_columns(*names: str, **settings: Any) -> list[Column]:
    """Columns of numbers, likewise."""
    return text_columns(*names, kind="number", **settings)


type Row = Sequence[Value | str | None]


@dataclass(frozen=True)
class Table:
    """A title, groups of rows (a None continues the cell above it), and notes below; made by :func:`laid_out`.

    Neighbouring tables with the same ``section`` stand under one heading.

    On a page with ``sorted_by``, readers can sort by any column; at first it is that one, greatest first. What is
    ``folded`` opens there by its title.
    """

    columns: Sequence[Column]
    groups: Sequence[Sequence[Row]]
    title: str = ""
    sorted_by: str = ""
    notes: Sequence[str] = ()
    section: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        """Refuse a ragged row, of which a renderer would drop or shift cells in silence.

        Raises:
            ValueError: a row has not one cell for each column.
        """
        for row in chain.from_iterable(self.groups):
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells for the columns {', '.join(self.headers)}")

    @property
    def heading(self) -> str:
        """The section and the title, for where both share one line."""
        return ", ".join(filter(None, (self.section, self.title)))

    @property
    def headers(self) -> list[str]:
        """Those of the columns, for where there is one line of them."""
        return [column.header for column in self.columns]

    def rows(self) -> Iterator[list[Value]]:
        """Every row, with an empty cell where the one above it continues."""
        for row in chain.from_iterable(self.groups):
            yield list(map(as_cell, row))


def laid_out(
    rows: pl.DataFrame | Iterable[Fields], columns: Sequence[Column], block: str = "", **settings: Any
) -> Table:
    """A row of cells for each row, in the columns that are shown.

    Args:
        rows: a frame, or its rows.
        columns: each says where its cells come from.
        block: a field; neighbouring rows that agree in it are a group, in which its own column stands once.
        settings: those of :class:`Table`.
    """
    columns = [column for column in columns if column.shown]
    of_frame = rows.iter_rows(named=True) if isinstance(rows, pl.DataFrame) else rows
    groups = []
    for _, group in groupby(of_frame, lambda row: row[block] if block else ""):
        lines: list[Row] = []
        for row in group:
            continued = block if lines else None
            lines.append([None if (each.source or each.name) == continued else each.cell(row) for each in columns])
        groups.append(lines)
    return Table(columns, groups, **settings)


_SIDES = "sides"


def side_by_side(rows: pl.DataFrame, down: Sequence[str], *across: str) -> list[dict[str, Any]]:
    """Rows that agree in ``down`` as one, which has these fields; in columns, :func:`of` finds each by its ``across``.

    They are in the order in which the first of each comes.
    """
    side = itemgetter(*across)
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows.iter_rows(named=True):
        key = tuple(row[name] for name in down)
        found.setdefault(key, dict(zip(down, key, strict=True)) | {_SIDES: {}})[_SIDES][side(row)] = row
    return list(found.values())


def of(across: Any, source: Source) -> Source:
    """The source, taken of that side of a row of :func:`side_by_side`; None where it has none."""

    def cell(row: Fields) -> Any:
        side = row[_SIDES].get(across)
        return side and (source(side) if callable(source) else side[source])

    return cell


def sides(row: Fields) -> list[dict[str, Any]]:
    """All that stand side by side in a row of :func:`side_by_side`."""
    return list(row[_SIDES].values())


def as_cell(cell: Value | str | None) -> Value:
    """The cell itself, or one of plain text, or an empty one."""
    return cell if isinstance(cell, Value) else Value(cell or "")


def or_dash(value: float | None, form: str) -> str:
    """A number in this format, such as ``.3f``; ``-`` for one that does not exist."""
    return "-" if value is None else format(value, form)


def bracketed(value: float, low: float | None, high: float | None, show: Callable[[float], str]) -> str:
    """A figure and the interval around it, where it has one."""
    return show(value) if low is None or high is None else f"{show(value)} [{show(low)}, {show(high)}]"


def p_value(value: float | None) -> str:
    """A p with three decimals, never 0; ``-`` for one that does not exist."""
    return "< 0.001" if value is not None and value < 0.001 else or_dash(value, ".3f")


def p_said(value: float) -> str:
    """The same in a sentence."""
    return f"p = {p_value(value)}".replace("= <", "<")


def loss(value: float | None) -> str:
    """A relative loss in percent, without a negative zero."""
    return or_dash(value, "z.1%")


def share(value: float | None) -> str:
    """The same in a sentence."""
    return loss(value).replace("%", " %")


ALPHA = 0.05
"""Family-wise error rate of signs and verdicts."""
UNTESTED = "? cannot tell: nothing to test (a single query, or none that differs), or the reading of the runs decides"
"""The legend of that sign."""


def significance(row: Mapping[str, Any]) -> str:
    """``°`` if the corrected test shows no difference (p ≥ 0.05), ``≈`` if the corrected one shows equivalence.

    ``?`` where there is no test (:data:`UNTESTED`).
    """
    different, equivalent = map(row.get, ("p_holm", "p_equivalent_holm"))
    # both signs at once: a difference may be too small to matter and too small to be shown
    sign = "?" if different is None or row.get("decides") else "°" * (different >= ALPHA)
    return sign + "≈" * (equivalent is not None and equivalent < ALPHA)


def interval(low: float | None, high: float | None, queries: int) -> str:
    """The uncertainty of a relative loss, in words."""
    return ("" if low is None else f"95 % interval {share(low)} to {share(high)}, ") + f"n = {queries:,}"


def figure_columns(name: str, show: Callable[[Any], str], header: str = "", **settings: Any) -> list[Column]:
    """A figure and its 95 % interval (:meth:`eval_kit.stats.figure.Figure.columns`); ``-`` where it has none."""
    value, ends = partial(_of_figure, name, show), partial(ends_shown, name=name, show=show)
    return [
        Column(header or name, "number", value, **settings),
        Column("95 %", "number", ends, beside_last=True, **settings),
    ]


def _of_figure(name: str, show: Callable[[Any], str], row: Fields) -> str | None:
    return None if row[name] is None else show(row[name])


def ends_shown(row: Fields, show: Callable[[Any], str] = loss, name: str = "", between: str = " to ") -> str | None:
    """The interval in a row's ``low`` and ``high``, or those of a ``name``; None where it has none."""
    low, high = (row[f"{name}_{end}" if name else end] for end in ("low", "high"))
    return None if low is None or high is None else f"{show(low)}{between}{show(high)}"


def with_p(rho: Any, digits: int = 3) -> str:
    """A correlation with its p and, where it has one, its interval."""
    if rho.value is None or rho.p is None:
        return "-"
    ends = ends_shown(dict(zip(("low", "high"), rho.interval, strict=True)), f"{{:+.{digits}f}}".format)
    return f"{rho.value:+.{digits}f}{f' ({ends})' if ends else ''}, {p_said(rho.p)}"
