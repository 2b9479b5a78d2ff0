"""The folder that every test here works in, and a bound for the memory that all of them take."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST_MEMORY = 3 << 20
"""KiB at the peak of the whole process, libraries and all."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inside = pytest.importorskip("tests.fuzz.inside", exc_type=ImportError)
    made: Path = inside.make(tmp_path_factory.mktemp("fuzz") / "inside")
    return made


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # tests of other modules may have run in this process
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < max(MOST_MEMORY, before + 1)
