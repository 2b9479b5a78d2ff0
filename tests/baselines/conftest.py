"""A release to train on, made once for the whole session."""

from pathlib import Path

import pytest

from builder import mini as planted
from builder import negatives
from builder import release as releases
from eval_kit.release import Release, open_release
from tests.conftest import built_once


@pytest.fixture(scope="session")
def trainable_release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A mini release of 500 queries with 20 BM25 negatives each."""

    def build(folder: Path) -> None:
        releases.write(planted.draft(queries=500), folder)
        parameters = negatives.NegativeParameters(depth=100, sample=20)
        negatives.add(folder, parameters, cache=folder.parent / "cache", threads=1)

    return open_release(built_once(tmp_path_factory, "trainable", build))
