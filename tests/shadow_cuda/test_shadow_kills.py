"""Kills on the make-believe CUDA device: a resumed training ends with the bits of one that was left alone."""

from pathlib import Path

import pytest

from eval_kit.release import Release
from tests.shadow_cuda.conftest import SYSTEMS, Scenario
from tests.tiny_checkpoints import tiny

pytestmark = pytest.mark.slow


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_killed_training_ends_with_the_same_weights(
    scenario: Scenario, trainable_release: Release, tmp_path: Path, system: str
) -> None:
    backbone = str(tiny("masked"))  # with dropout, so that the random state of the device matters
    options = {"precision": "bfloat16", "steps": 6, "checkpoint_every": 2, "backbone": backbone}
    release = str(trainable_release.folder)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    scenario("train", release=release, jobs=[(system, str(whole), options)])
    scenario("train", killed=True, release=release, jobs=[(system, str(killed), options)], kill=3)
    scenario("train", release=release, jobs=[(system, str(killed), options)], disturb=True)
    expected = {name: data for name, data in weights(whole).items() if "checkpoint" not in name}
    resumed = {name: data for name, data in weights(killed).items() if "checkpoint" not in name}
    assert resumed == expected != {}
