"""Mini-batches on the make-believe CUDA device: its memory decides on them, and they draw the same dropout."""

from pathlib import Path

import pytest

from eval_kit.release import Release
from tests.shadow_cuda.conftest import SYSTEMS, Scenario
from tests.tiny_checkpoints import tiny

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("system", SYSTEMS)
def test_too_little_memory_takes_mini_batches_or_ends_in_one_sentence(
    scenario: Scenario, trainable_release: Release, tmp_path: Path, system: str
) -> None:
    shares = [0.4, 0.7, 0.9, 1.1]
    facts = scenario(
        "limits", release=str(trainable_release.folder), system=system, folder=str(tmp_path), shares=shares
    )
    *limited, enough = facts["limited"]
    assert enough["mini_batch_size"] is None
    for row in limited:
        if "sentence" in row:
            assert "memory cannot hold" in row["sentence"]
        else:
            assert row["mini_batch_size"] < row["batch_size"] == 16
            assert row["peak"] <= row["share"] * facts["whole"]["peak"]
        assert row["left"] == 0
    assert any("sentence" not in row for row in limited)


@pytest.mark.parametrize("system", SYSTEMS)
def test_mini_batches_draw_the_same_dropout_twice(
    scenario: Scenario, trainable_release: Release, tmp_path: Path, system: str
) -> None:
    arguments = {"release": str(trainable_release.folder), "system": system, "backbone": str(tiny("masked"))}
    real = scenario("replay", **arguments, root=str(tmp_path / "real"), control=False)
    control = scenario("replay", **arguments, root=str(tmp_path / "control"), control=True)
    assert real["passes"] > 2
    assert real["difference"] == 0.0
    assert control["difference"] > 0.01
