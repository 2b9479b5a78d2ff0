"""Tables in a terminal: whatever its width, no number breaks, and every part of a table says what its rows are."""

import re
from io import StringIO
from itertools import pairwise

import pytest
from rich.console import Console

from eval_kit.tables import terminal
from eval_kit.tables.table import Column, Table, Value, loss

NUMBER = re.compile(r"-?\d\.\d{4} \[-\d\.\d{4}, -\d\.\d{4}\]|-?\d\.\d{4}")


def wide(systems: int) -> Table:
    columns = [Column("test set", wrap="never"), Column("base", "number", wrap="anywhere")]
    row: list[Value | str] = ["dl19", "0.1234"]
    for index in range(systems):
        columns.append(Column(f"a-system-with-a-long-name-{index}", "number", wrap="anywhere"))
        columns.append(Column("Δ", "number", beside_last=True))
        row += [f"0.{index:04}", Value(f"-0.{index:04} [-0.2000, -0.1000]", mark="°")]
    return Table(columns, [[row, row]])


def printed(table: Table, width: int) -> list[str]:
    console = Console(file=StringIO(), width=width)
    terminal.show(table, console)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [50, 80, 120, 4_000])
def test_no_number_breaks_and_every_row_is_named(width):
    lines = printed(wide(30), width)
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("dl19")]
    numbers = NUMBER.findall(" ".join(rows))
    intervals = [f"-0.{index:04} [-0.2000, -0.1000]" for index in range(30)]
    assert sorted(numbers) == sorted(2 * ["0.1234", *(f"0.{index:04}" for index in range(30)), *intervals])
    assert not any(NUMBER.search(line) for line in lines if not line.startswith("dl19"))
    for line in rows:  # an interval stands beside its system's value
        values = NUMBER.findall(line)
        assert all(interval.startswith(f"-{value} ") for value, interval in pairwise(values) if "[" in interval)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_name_breaks_that_fits_in_a_line(width):
    names = ["typo.swap_adjacent", "qrels.dl19-passage", "a long name of words"]
    columns = [Column("variation", wrap="anywhere"), *(Column(f"measure@{at}", "number") for at in range(9))]
    lines = printed(Table(columns, [[[name, *["0.1234"] * 9] for name in names]]), width)
    for name in (*names[:2], *(f"measure@{at}" for at in range(9))):
        assert any(name in line for line in lines), name
    assert max(map(len, lines)) <= width
    too_long = printed(Table(columns[:1], [[["x" * 90]]]), width)[1:]
    assert "".join(too_long).count("x") == 90 and max(map(len, too_long)) <= width


def test_a_table_that_fits_is_one():
    assert sum("test set" in line for line in printed(wide(2), 160)) == 1
    assert sum("test set" in line for line in printed(wide(2), 60)) == 2


def test_a_loss_that_rounds_to_nothing_has_no_sign():
    assert [loss(value) for value in (-0.0004, 0.0004, -0.0006, None)] == ["0.0%", "0.0%", "-0.1%", "-"]


def test_spare_columns_go_before_a_table_is_divided():
    columns = [Column("part"), Column("value", "number"), Column("helped", "number", spare=True), Column("p", "number")]
    table = Table(columns, [[["c0", "0.1234", "12/3/28", "0.001"]]])
    for width, headers in ((60, ["part", "value", "helped", "p"]), (23, ["part", "value", "p"])):
        head, row = printed(table, width)
        assert head.split() == headers and len(row.split()) == len(headers), width
