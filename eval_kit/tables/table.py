"""One table, before it is known whether it goes to a terminal, a page, Markdown or LaTeX.

Texts are as they are: each renderer escapes them, so that names from elsewhere can break no format. Numbers have an
ASCII minus sign, and ``-`` alone stands for a number that does not exist.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import rich.table


@dataclass(frozen=True)
class LossBar:
    """A loss drawn as a bar with its 95 % interval; all bars of a table share one scale.

    Attributes:
        loss: as a fraction; None draws no bar.
        low: lower end of the interval.
        high: upper end.
        harm: 1 where a loss above 0 is harm, -1 where one below 0 is.
    """

    loss: float | None
    low: float | None
    high: float | None
    harm: int = 1


@dataclass(frozen=True)
class Cell:
    """What stands in one column of one row.

    Attributes:
        text: on one line.
        mark: behind the text, such as ``°``.
        below: a second, quieter line.
        bold: the best of several.
        shaded: set apart from the row's other cells.
        style: colour of the text in a terminal, as rich names it.
        tooltip: what a page shows beside the cell.
        sort: what a page sorts the cell by.
        bar: drawn below the text on a page.
    """

    text: str
    mark: str = ""
    below: str = ""
    bold: bool = False
    shaded: bool = False
    style: str = ""
    tooltip: str = ""
    sort: float | None = None
    bar: LossBar | None = None


@dataclass(frozen=True)
class Column:
    """A column: its header, and how its cells are set.

    Attributes:
        name: the header.
        kind: ``number`` is aligned right; ``heading`` names the rows, ``label`` what their numbers are.
        group: a header above this column and those beside it with the same group.
        wrap: where a terminal may break a line of it.
        min_width: in a terminal.
        style: of the whole column in a terminal.
    """

    name: str
    kind: Literal["text", "number", "heading", "label"] = "text"
    group: str = ""
    wrap: Literal["words", "anywhere", "never"] = "words"
    min_width: int | None = None
    style: str = ""


type Row = Sequence[Cell | str | None]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: at least one.
        groups: rows that belong together, each as long as ``columns``; a None continues the cell above it.
        title: above it.
        sorted_by: the column that a page sorts by at first, greatest first; its readers can sort by any other.
        notes: below it.
    """

    columns: Sequence[Column]
    groups: Sequence[Sequence[Row]]
    title: str = ""
    sorted_by: str = ""
    notes: Sequence[str] = ()

    def rows(self) -> Iterable[list[Cell]]:
        """Every row, with an empty cell where the one above it continues."""
        return ([as_cell(cell) for cell in row] for group in self.groups for row in group)

    def __rich__(self) -> rich.table.Table:
        """What rich prints in its place: the table without its notes."""
        from eval_kit.tables.terminal import to_rich

        return to_rich(self)


def as_cell(cell: Cell | str | None) -> Cell:
    """The cell itself, of a plain text, or an empty one."""
    return cell if isinstance(cell, Cell) else Cell(cell or "")


def loss(value: float | None) -> str:
    """A relative loss in percent."""
    return "-" if value is None else f"{value:.1%}"


def interval(low: float | None, high: float | None, queries: int) -> str:
    """What is behind a relative loss."""
    return f"95% interval {loss(low)} to {loss(high)}, n = {queries:,}"
