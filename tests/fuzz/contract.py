"""What every command promises for any input: see docs/security.md."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from eval_kit.cli import app
from eval_kit.errors import MOST_SHOWN, reporting

LONG = "FUZZ_EXAMPLES" in os.environ
fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", 8)),
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


def keeps_the_contract(command: Callable[[], object], folder: Path, statuses: tuple[int, ...] = (0, 2)) -> Ended:
    """Run a command on whatever is in ``folder``, and assert that it ends as promised.

    That is: with one of the statuses and no other exception; with one line of bounded length where it refuses, after
    those of its warnings; with no control character on the screen; and with every file, in the folder and beside it,
    as it was.
    """
    before = names(folder.parent)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        patch.setattr(sys, "argv", ["kit"])
        with reporting("kit"):
            command()
            sys.exit(0)
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    status = int(end.value.code or 0)
    assert status in statuses, said
    assert not CONTROLS.search(printed + said), printed + said
    assert "Traceback" not in printed + said
    if status == 2 and said.startswith("kit: "):
        *warned, refused = said.splitlines()
        assert all(line.startswith("kit: ") and len(line) < MOST_SHOWN + 50 for line in [*warned, refused]), said
    assert names(folder.parent) == before
    return Ended(status, printed, said)


def names(folder: Path) -> set[tuple[str, int]]:
    """Every file below a folder, with its size."""
    return {(str(path), path.lstat().st_size) for path in folder.rglob("*")}


def kit(folder: Path, *arguments: object, statuses: tuple[int, ...] = (0, 2)) -> Ended:
    """A command of the evaluator that keeps the contract."""
    return keeps_the_contract(partial(app, [str(argument) for argument in arguments]), folder, statuses)


def scored(folder: Path, *options: str) -> Ended:
    """The run is scored on the release."""
    return kit(folder, "score", folder / "run.trec", "--release", folder / "release", *options)


class Swapped:
    """A file with other content while the block lasts."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content, self.before = path, content, path.read_bytes()

    def __enter__(self) -> None:
        self.path.write_bytes(self.content)

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.before)
