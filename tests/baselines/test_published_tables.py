"""The list of published tables: current, whole, and of commands that there are."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import baselines.cli
import builder.cli
import eval_kit.cli
from eval_kit.papers.commands import PublishedTable, markdown, published_tables
from eval_kit.papers.printed_table import table
from eval_kit.release.reference import ids, load, printed
from eval_kit.tables.markdown import to_markdown

ROOT = Path(__file__).parents[2]
APPS = {"eval_kit": eval_kit.cli.app, "python -m builder": builder.cli.app, "python -m baselines": baselines.cli.app}


def test_the_list_for_people_is_current() -> None:
    listed = (ROOT / "docs" / "published-tables.md").read_text(encoding="utf-8")
    assert listed == markdown(), "run: python -m eval_kit.papers.commands > docs/published-tables.md"


def test_every_table_that_is_data_is_listed_once_and_the_others_say_why_not() -> None:
    assert sorted(entry.id for entry in published_tables() if entry.id) == ids()
    for entry in published_tables():
        assert entry.own or entry.why, entry
        if entry.id:
            assert load(entry.id)["table"] == entry.table, entry


def test_every_table_of_the_papers_is_listed() -> None:
    """Counted in the papers' captions."""
    counts = {"ECIR 2023": 3, "arXiv 2205.02870v1": 5, "BEIR, NeurIPS 2021": 10, "CIKM 2021": 8, "CIKM 2022": 10}
    for paper, count in counts.items():
        numbers = [entry.table for entry in published_tables() if entry.paper == paper and "Table" in entry.table]
        assert numbers == [f"Table {number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("entry", [entry for entry in published_tables() if entry.own], ids=lambda one: one.command)
def test_the_command_and_its_options_exist(entry: PublishedTable) -> None:
    program = next(name for name in APPS if entry.command.startswith(f"{name} "))
    command: Any = typer.main.get_command(APPS[program])
    words = entry.command.removeprefix(program).split()
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"--[a-z0-9-]+", entry.command)) <= known


@pytest.mark.parametrize("id", ids())
def test_a_table_shows_every_figure_as_printed(id: str) -> None:
    reference = load(id)
    shown = table(reference, {})
    figures = sorted(cell.text for row in shown.rows() for cell in row if re.fullmatch(r"-?[\d,.]+%?", cell.text))
    assert figures == sorted(map(printed, reference["cells"]))
    assert to_markdown(shown).count("\n") > len(figures) / 20
