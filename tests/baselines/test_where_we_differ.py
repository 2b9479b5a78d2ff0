"""docs/where-we-differ.md: its recipes are those of the configs, and every row has a state and a reason."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from baselines import config

TEXT = (Path(__file__).parents[2] / "docs" / "where-we-differ.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """The cells of each row of the tables below a heading."""
    below = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert below, section
    lines = [line for line in below[1].splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


RECIPES = rows("Training recipes")
OPERATION = {
    "compile", "loader_processes", "checkpoint_every", "evaluate_every", "encode_precision", "depth", "index", "engine",
    "store",
}  # fmt: skip
"""Options that say how a grid is run."""


def written(name: str) -> dict[str, dict[str, Any]]:
    """The options of each system that a config writes, defaults too."""
    document = json.loads((config.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    shared = document.get("neural", {})
    return {system: own if system == "bm25" else shared | own for system, own in document["systems"].items()}


@pytest.mark.parametrize("row", RECIPES, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_recipe_is_the_configs_and_a_difference_has_a_reason(row: list[str]) -> None:
    name, option, paper, ours, reason = row
    system, _, key = option.partition(".")
    value = written(name)[system].get(key)
    assert json.loads(ours) == value, f"{name} has {system}.{key} = {value!r}"
    if paper.startswith("*") or json.loads(paper) != value:
        assert reason, f"{option}: differs from the paper without a reason"


@pytest.mark.parametrize("name", ["paper", "paper-cikm2022"])
def test_every_option_that_decides_a_weight_or_a_rank_has_its_row(name: str) -> None:
    listed = {option for config_name, option, *_ in RECIPES if config_name == name}
    assert listed == {
        f"{system}.{key}" for system, chosen in written(name).items() for key in chosen if key not in OPERATION
    }


def test_every_part_has_a_state_and_what_speaks_for_it() -> None:
    papers = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)[1:-1]
    assert len(papers) == 4
    for paper in papers:
        for part, state, reason in rows(paper):
            assert part and state, part
            assert reason or "(#" in state, part
