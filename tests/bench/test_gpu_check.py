"""The check of a GPU at sizes that a CPU takes seconds for, and the hours that follow from rates."""

from pathlib import Path
from typing import Any

import pytest

from baselines import config
from baselines.grid import hours
from baselines.options import Trained
from bench import gpu_check

RATES: dict[str, Any] = {
    "re-rank": 1_000,
    **{f"train {system}": 100 for system in gpu_check.NEURAL},
    **{f"encode {system}": 500 for system in hours.SEARCHES},
    **dict.fromkeys(("dense search", "sparse search"), 50),
    "plaid": 20,
    "plaid build": 2_000,
}


def seconds(monkeypatch: pytest.MonkeyPatch, system: str, name: str = "paper", pairs: int = 0) -> float:
    """Of one cell that searches 1,000 queries among two million passages."""
    certain = {**RATES, "until": 0.5, "disk_gb": 2}
    monkeypatch.setattr(hours, "_draws", lambda rates, what: certain[what])
    options = config.read(name).systems[system]
    assert isinstance(options, Trained)
    draws = hours.of_cell(system, options, 2_000_000, 1_000, pairs, RATES)
    assert draws.min() == draws.max()
    return float(draws[0]) * 3_600


def test_hours_are_work_divided_by_rates(monkeypatch: pytest.MonkeyPatch):
    evaluations = 10 * 1_600 * 101 / 500
    searching = 1_000 * 2_000_000 / 8_841_823 / 50
    expected = 50_000 * 128 / 100 + evaluations + 2_000_000 / 500 + searching
    assert seconds(monkeypatch, "biencoder") == pytest.approx(expected)
    tokens = 2e6 * 70 * 128 * 2 * 2.6 / 2e9
    expected = 150_000 * 32 / 100 + 2_000_000 / 500 + 1_000 / 20 + 1_000 + tokens
    assert seconds(monkeypatch, "colbert") == pytest.approx(expected)
    assert seconds(monkeypatch, "monobert") == pytest.approx(150_000 * 32 / 100 + 1_000 * 1_000 / 1_000)
    of_epochs = seconds(monkeypatch, "monobert", "paper-cikm2022", 400_000)
    candidates = config.read("paper-cikm2022").systems["monobert"].candidates  # type: ignore[attr-defined]
    assert of_epochs == pytest.approx(50 * 400_000 / 100 + candidates * 1_000 / 1_000)


def test_the_assumed_hours_of_the_paper_are_those_on_the_page():
    page = Path(__file__).parents[2] / "docs" / "baselines.md"
    assert hours.in_words(gpu_check.of_paper(hours.H100)).partition(" (")[0] in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_part_works_on_a_cpu(tmp_path: Path):
    rates = gpu_check.measure(tmp_path, gpu_check.CPU)
    assert not [rate for rate in rates.values() if isinstance(rate, str)]
    assert rates.keys() == RATES.keys()
    assert gpu_check.of_paper(rates).keys() == {*gpu_check.NEURAL}
