"""Another package adds a measure, a division and a question, without a clone."""

import json
import sys
from pathlib import Path

import pytest

from eval_kit import cli, score

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGE = '''
from dataclasses import dataclass
from typing import Any
import polars as pl
from eval_kit.measures.definitions import Kind
from eval_kit.results import Result
from eval_kit.tables.table import laid_out, number_columns

def first(measure):
    return (pl.col("rank") == 1).any()

FIRST = Kind("First", first)

def initials(queries):
    return queries.select("query_id", part=pl.col("text").str.slice(0, 1))

@dataclass(frozen=True, repr=False)
class Count(Result):
    title = "Count"
    provenance: Any
    n: int
    def to_polars(self):
        return pl.DataFrame({"n": [self.n]})
    def tables(self):
        return [laid_out(self.to_polars(), number_columns("n"))]

def count(n: int = 3) -> Count:
    """Count."""
    return Count({"kit_version": "0"}, n)
'''
POINTS = {
    "measures": "First = another:FIRST",
    "divisions": "initial = another:initials",
    "questions": "count = another:count",
}


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "another.py").write_text(PACKAGE)
    (tmp_path / "another-1.dist-info").mkdir()
    (tmp_path / "another-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1\n")
    points = "".join(f"[ms_marco_shift.{group}]\n{point}\n" for group, point in POINTS.items())
    (tmp_path / "another-1.dist-info/entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)


def test_its_measure_and_its_division_are_named_like_the_kits() -> None:
    own = score(EXAMPLES / "bm25.trec", EXAMPLES, ["First", "P@1"], by=["initial"])
    assert own.means[0].value == own.means[1].value > 0
    texts = [json.loads(line)["text"][0] for line in (EXAMPLES / "queries.jsonl").read_text().splitlines()]
    assert set(own.parts["part"]) <= set(texts) and own.divisions == {"initial": "another:initials"}


def test_its_question_is_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["eval_kit", "count", "--n", "5", "--format", "csv"])
    monkeypatch.setattr(cli.app, "registered_commands", [*cli.app.registered_commands])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().out) == (0, "n\n5\n")
