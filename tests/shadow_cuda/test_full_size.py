"""What a training step takes at the papers' size: the figures in ``bench/results`` and on the page, computed again."""

import json
from pathlib import Path
from typing import Any

import pytest

from baselines import config
from baselines.options import Trained
from tests.conftest import ROOT
from tests.shadow_cuda.bounds import CONFIGS, step_of
from tests.shadow_cuda.conftest import Scenario


def kept() -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]]
    figures = json.loads((ROOT / "bench" / "results" / "bounds.json").read_text(encoding="utf-8"))
    return figures


def steps() -> list[tuple[dict[str, Any], list[str]]]:
    """What decides each step of the papers' configs, and the systems that take it, as ``config/system``."""
    alike: list[tuple[dict[str, Any], list[str]]] = []
    for name in CONFIGS:
        for system, options in config.read(name).systems.items():
            if not isinstance(options, Trained) or options.as_json().get("starts_from"):
                continue  # ADORE needs what another cell encoded; its step is of queries alone
            step = step_of(options) | {"system": system.partition("-")[0]}
            known = next((names for other, names in alike if other == step), None)
            if known is None:
                alike.append((step, known := []))
            known.append(f"{name}/{system}")
    return alike


def test_every_system_of_the_papers_has_the_figures_of_its_step() -> None:
    figures = kept()
    assert sorted(figures) == sorted(name for _, names in steps() for name in names)
    for _, names in steps():
        assert all(figures[name] == figures[names[0]] for name in names)


@pytest.mark.slow
def test_a_step_takes_what_the_kept_figures_say(scenario: Scenario, tmp_path: Path) -> None:
    names = [names[0] for _, names in steps()]
    assert len(names) == 9
    seen = scenario("full_size", steps=[name.split("/") for name in names], folder=str(tmp_path))
    for name, computed in zip(names, seen, strict=True):
        assert computed == pytest.approx(kept()[name], rel=0.25, abs=0.1), (
            name
        )  # texts are random, pairs counted at full width
