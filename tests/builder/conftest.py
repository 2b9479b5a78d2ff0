"""Fixtures that several files use."""

from collections.abc import Iterator

import pytest
from file_server import Server

from builder.collection import Collection
from builder.sources import mini
from eval_kit.release import Release


@pytest.fixture(params=["mini_release", "published_release"])
def release(request: pytest.FixtureRequest) -> Release:
    """Each of the two in turn."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def small() -> Collection:
    """Mini's collection, of 1,500 queries."""
    return mini.collection(mini.MiniParameters(queries=1_500))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.shutdown()
    server.server_close()
