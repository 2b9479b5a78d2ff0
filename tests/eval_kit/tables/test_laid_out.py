"""Tables of declared columns: where cells come from, what stands where there is nothing, and that none is ragged."""

import polars as pl
import pytest

from eval_kit.tables.table import Column, Table, Value, laid_out, of, side_by_side

ROWS = pl.DataFrame({"part": ["a", "a", "b"], "run": ["x", "y", "x"], "value": [0.25, None, 1_000.0]})


def cells(table: Table) -> list[list[list[str | None]]]:
    return [
        [[each.text if isinstance(each, Value) else each for each in row] for row in group] for group in table.groups
    ]


def test_a_ragged_row_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells"):
        Table([Column("a"), Column("b")], [[["x", "y"], ["x"]]])


def test_cells_come_from_fields_and_functions() -> None:
    columns = [
        Column("in", source="part"),
        Column("run"),
        Column("value", "number", format=",.1f"),
        Column("none", "number", "value", ".0f", none=""),
        Column("not there", shown=False),
        Column("both", source=lambda row: Value(row["part"] + row["run"], mark="°")),
    ]
    expected = [[["a", "x", "0.2", "0", "ax"], [None, "y", "-", "", "ay"]], [["b", "x", "1,000.0", "1000", "bx"]]]
    assert cells(laid_out(ROWS, columns, block="part")) == expected
    assert [len(group) for group in laid_out(ROWS, columns).groups] == [3]


def test_rows_stand_side_by_side_and_one_that_is_lacking_leaves_its_cell_empty() -> None:
    columns = [Column("run"), *(Column(part, "number", of(part, "value"), ".2f", none="") for part in "ab")]
    assert cells(laid_out(side_by_side(ROWS, ["run"], "part"), columns)) == [[["x", "0.25", "1000.00"], ["y", "", ""]]]
