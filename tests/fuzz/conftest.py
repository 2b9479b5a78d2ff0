"""The folder that every test here works in."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inside = pytest.importorskip("tests.fuzz.inside", exc_type=ImportError)
    made: Path = inside.make(tmp_path_factory.mktemp("fuzz") / "inside")
    return made
