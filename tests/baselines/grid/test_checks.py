"""What would stop a grid after hours is one sentence before it starts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_checkpoints import tiny

from baselines import systems
from baselines.grid import checks
from baselines.training.queries import training, updates
from eval_kit.errors import UserError
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell

CASES = [
    *((role, model) for role in ("backbone", "teacher") for model in ("nowhere", "nobody/no-such-model")),
    ("backbone", "words"),  # no transformer
    ("teacher", "cross"),  # of another architecture than kl needs
]


@pytest.mark.parametrize(("role", "model"), CASES)
def test_a_model_that_is_nowhere_or_of_another_kind(mini_release: Release, tmp_path: Path, role: str, model: str):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "modules.json").write_text("[]")
    named = {"nobody/no-such-model": model, "cross": str(tiny("cross"))}.get(model, str(tmp_path / model))
    options = {"backbone": named} if role == "backbone" else {"teacher": named, "distillation": "kl"}
    with pytest.raises(UserError) as error:
        checks.refuse([tiny_cell("biencoder", mini_release, tmp_path / "grid", **options)])
    assert named in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "grid").exists()


NEVER = [
    ({"steps": 9, "mine_every": 9}, "9 steps"),  # what the last step mines, nothing learns from
    ({"steps": 9, "evaluate_every": 10, "patience": 1}, "9 steps"),
    ({"steps": None, "epochs": 0.5, "batch_size": 10_000, "mine_every": 3, "static_negatives": 1}, "1 step"),
]


@pytest.mark.parametrize(("options", "said"), NEVER)
def test_a_training_that_would_end_before_it_does_what_its_options_say(
    mini_release: Release, tmp_path: Path, options: dict[str, Any], said: str
):
    """Mini has no negatives, which need not be drawn for the check."""
    cell = tiny_cell("biencoder", mini_release, tmp_path, **options)
    for refuse in (lambda: checks.refuse([cell]), lambda: systems.system("biencoder").train(cell)):
        with pytest.raises(UserError, match=f"would train for {said}, which (mine|evaluate)_every"):
            refuse()
    enough = {name: 3 for name in ("mine_every", "evaluate_every") if name in options}
    checks.refuse([tiny_cell("biencoder", mini_release, tmp_path, **options | {"epochs": None, "steps": 4} | enough)])


def test_an_epoch_passes_over_pairs(mini_release: Release, tmp_path: Path):
    """Of a query and each of its relevant passages: DRhard's passes over queries."""
    cell = tiny_cell("biencoder", mini_release, tmp_path, steps=None, epochs=3, batch_size=7)
    judged = replace(training(cell), positives={"q1": ["p1", "p2", "p3"], "q2": ["p1"]})
    assert updates(cell, judged) == 2  # 3 epochs of 4 pairs in batches of 7
