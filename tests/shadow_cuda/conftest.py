"""The shadow device, compiled once a run, and scenarios on it."""

import importlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clients
import pytest
from filelock import FileLock

from tests.conftest import ROOT

type Scenario = Callable[..., Any]

SYSTEMS = ("biencoder", "splade", "colbert", "monobert")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The device, compiled once for all workers; ``SHADOW_CUDA`` may name another's module."""
    if (name := os.environ.get("SHADOW_CUDA", "tests.shadow_cuda.device")) == "none":
        return tmp_path_factory.mktemp("gpu")
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: NOTHING of the CUDA paths is tested here")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shadow-cuda"
    with FileLock(f"{folder}.lock"):
        if not (folder / "built").exists():
            compiled = getattr(importlib.import_module(name), "compiled", Path.mkdir)
            compiled(folder)
            (folder / "built").touch()
    return folder


@pytest.fixture(scope="session")
def scenario(built: Path) -> Scenario:
    """Run a scenario in a process of its own, and return what it printed."""

    def run(name: str, killed: bool = False, **arguments: Any) -> Any:
        line = ["-m", "tests.shadow_cuda.scenarios", str(built), name, json.dumps(arguments)]
        ended = clients.run(line, {**os.environ, "TOKENIZERS_PARALLELISM": "false"}, ROOT, neural=True)
        assert ended.returncode == (-signal.SIGKILL if killed else 0), ended.stderr
        return None if killed else json.loads(ended.stdout.splitlines()[-1])

    return run
