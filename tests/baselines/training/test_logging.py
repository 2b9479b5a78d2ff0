"""What a training logs."""

from pathlib import Path

from baselines.training.trainer import _arguments
from tests.baselines.tiny_cells import tiny_options


def test_a_loss_is_logged_by_the_first_evaluation(tmp_path: Path) -> None:
    options = tiny_options("static", steps=4_000, evaluate_every=3, patience=1)
    assert _arguments(options, 0, 4_000, tmp_path)["logging_steps"] <= 3
