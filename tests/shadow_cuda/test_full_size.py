"""What a training step takes at the papers' size: the figures in ``bench/results`` and on the page, computed again."""

import json
from pathlib import Path

import pytest

from bench.gpu_check import BESIDE
from tests.conftest import ROOT
from tests.shadow_cuda.conftest import Scenario

CARDS = (16, 24, 40, 80)


def kept() -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]]
    figures = json.loads((ROOT / "bench" / "results" / "bounds.json").read_text(encoding="utf-8"))
    return figures


@pytest.mark.slow
def test_a_step_takes_what_the_kept_figures_say(scenario: Scenario, tmp_path: Path) -> None:
    expected = kept()
    seen = scenario("full_size", steps=[name.split("/") for name in expected], folder=str(tmp_path))
    assert len(seen) == 4
    for (name, figures), computed in zip(expected.items(), seen, strict=True):
        assert computed == pytest.approx(figures, rel=0.05, abs=0.1), name


def test_the_page_names_the_smallest_card_of_each_system() -> None:
    page = (ROOT / "docs" / "full-size.md").read_text(encoding="utf-8")
    for name, figures in kept().items():
        config, system = name.split("/")
        card = next(size for size in CARDS if figures["peak_gb"] + BESIDE <= size)
        taken = f"{figures['tflop']} | {figures['kernels']:,} | {figures['peak_gb']} GB"
        row = f"| `{config}` | {system} | {taken} | {card} GB |"
        assert row in page, row
