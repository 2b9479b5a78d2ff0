"""What would stop a grid after hours is one sentence before it starts."""

from pathlib import Path

import pytest
from tiny_checkpoints import tiny

from baselines.cell import Cell
from baselines.grid import checks
from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.runs import names
from tests.baselines.tiny_cells import tiny_options


def cell(release: Release, root: Path, system: str = "biencoder", **options: object) -> Cell:
    return Cell(names.RunName(system, "topic", "c0"), release, tiny_options(system, depth=1000, **options), root)


def test_a_backbone_or_teacher_that_is_nowhere(mini_release: Release, tmp_path: Path):
    for model in (str(tmp_path / "nowhere"), "nobody/no-such-model"):
        for options in ({"backbone": model}, {"teacher": model, "distillation": "kl"}):
            with pytest.raises(UserError, match=r"cannot be loaded: there is no such folder"):
                checks.refuse([cell(mini_release, tmp_path / "grid", **options)])
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "modules.json").write_text("[]")
    with pytest.raises(UserError, match="words: is no transformer, which a training starts from"):
        checks.refuse([cell(mini_release, tmp_path / "grid", backbone=str(tmp_path / "words"))])
    wrong = cell(mini_release, tmp_path / "grid", teacher=str(tiny("cross")), distillation="kl")
    with pytest.raises(UserError, match=r"is a cross-encoder .*, not a late-interaction encoder"):
        checks.refuse([wrong])
    assert not (tmp_path / "grid").exists()
