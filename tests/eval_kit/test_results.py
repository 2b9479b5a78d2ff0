"""A result in all its forms: they show the same figures, escape what comes from outside, and stay short."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import polars as pl
import pytest
from rich.console import Console

from eval_kit.errors import UserError
from eval_kit.output import Format, emit
from eval_kit.results import REPR_LINES, Result, origin
from eval_kit.tables.table import Column, Table, number_columns

RELEASE = {"version": "1.2.3", "kind": "mini", "digest": "0123456789abcdef" * 4, "missing": []}
PROVENANCE = {"kit_version": "9", "release": RELEASE, "tie_rule": "by id", "runs": []}


@dataclass(frozen=True, repr=False)
class Means(Result):
    """A small result of its own."""

    title = "Means"
    means: pl.DataFrame
    provenance: dict[str, Any]

    def to_polars(self) -> pl.DataFrame:
        return self.means

    def tables(self) -> list[Table]:
        columns = [*map(Column, ("run", "bucket")), *number_columns("queries", "RR@10", "AP")]
        wide = self.means.pivot("measure", index=["run", "bucket", "queries"], values="value", maintain_order=True)
        lines = [
            [row["run"], row["bucket"], f"{row['queries']:,}", f"{row['RR@10']:.4f}", f"{row['AP']:.4f}"]
            for row in wide.iter_rows(named=True)
        ]
        return [Table(columns, [lines])]


def sliced(runs: int = 1, name: str = "run") -> Means:
    rows = [
        {"run": f"{name}{number}", "measure": measure, "bucket": "1", "value": 0.25, "queries": 4}
        for number in range(runs)
        for measure in ("RR@10", "AP")
    ]
    return Means(pl.DataFrame(rows), PROVENANCE)


@pytest.mark.parametrize("format", Format)
def test_every_format_has_every_figure(format, capsys):
    emit(sliced(3), format=format)
    text = capsys.readouterr().out
    assert all(f"run{number}" in text for number in range(3))
    assert text.count("0.25") == 6
    if format is Format.csv:
        assert len(list(csv.DictReader(io.StringIO(text)))) == 6


def test_json_and_page_are_written_beside_the_table(tmp_path: Path, capsys):
    result = sliced(2, "<b>")
    emit(result, json=tmp_path / "r.json", page=tmp_path / "r.html")
    assert json.loads((tmp_path / "r.json").read_text()) == result.as_json()
    page = (tmp_path / "r.html").read_text()
    assert "&lt;b&gt;1" in page and "<b>1" not in page
    assert origin(PROVENANCE) in page
    assert "0.25" in capsys.readouterr().out
    emit(result, format=Format.csv, json=Path("-"))
    assert json.loads(capsys.readouterr().out) == result.as_json()
    with pytest.raises(UserError):
        emit(result, page=tmp_path / "missing" / "r.html")


def test_a_result_in_a_session_is_its_table_and_short():
    few, many = sliced(2), sliced(500)
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        few.show(console)
    assert repr(few).split() == capture.get().split()
    assert len(repr(many).splitlines()) == REPR_LINES + 1
    assert repr(many).endswith("to_polars() has all 1,000 rows")
    assert "<script>" not in sliced(1, "<script>")._repr_html_()
    assert isinstance(few.to_pandas(), pandas.DataFrame)
    assert few.to_pandas().to_dict("records") == few.to_polars().to_dicts()


def test_a_column_without_a_number_is_of_numbers_in_pandas():
    schema = {"value": pl.Float64(), "low": pl.Float64(), "n": pl.Int64()}
    rows = pl.DataFrame({"value": [1.0], "low": [None], "n": [None]}, schema)
    assert (Means(rows, PROVENANCE).to_pandas().dtypes == "float64").all()


def test_a_release_is_one_line(published_release, mini_release):
    for release in (published_release, mini_release):
        assert len(repr(release)) < 250 and release.digest[:16] in repr(release)
        assert all(config in release._repr_html_() for config in release.configs)
    assert repr(mini_release.test_sets["dl19"]).startswith("TestSet(dl19: 43 queries, nDCG@10")
