"""What would stop a grid after hours is one sentence before it starts."""

from pathlib import Path

import pytest
from tiny_checkpoints import tiny

from baselines.grid import checks
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
