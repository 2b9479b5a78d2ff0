"""Fixtures that several files use."""

import pytest

from eval_kit.release import Release


@pytest.fixture(scope="session")
def release(trainable_release: Release) -> Release:
    """Data that neural systems can train on and search in no time."""
    return trainable_release
