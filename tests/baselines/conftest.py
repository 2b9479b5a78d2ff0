"""A release to train on, made once for the whole session."""

from pathlib import Path

import pytest

from builder import mini as planted
from builder import negatives
from builder import release as releases
from eval_kit.release import Release


@pytest.fixture(scope="session")
def trainable_release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A mini release of 500 queries with 20 BM25 negatives each."""
    folder: Path = tmp_path_factory.mktemp("trainable") / "ms-marco-shift"
    releases.write(planted.draft(queries=500), folder)
    parameters = negatives.NegativeParameters(depth=100, sample=20)
    return negatives.add(folder, parameters, cache=folder.parent / "cache", threads=1)
