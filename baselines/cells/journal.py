"""The state of a cell, kept in its folder: the stage it has reached, what each stage took, and a lock."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from filelock import FileLock, Timeout
from msgspec import UNSET, Struct, UnsetType

from eval_kit.documents import Count
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.text import read_utf8

_Stage = Literal["training", "indexing", "searching", "scoring"]
STAGES: tuple[_Stage, ...] = get_args(_Stage)
_SECONDS_BETWEEN_REPORTS = 1.0

type Report = Callable[[dict[str, Any]], None]
"""Takes the progress of a running stage, such as ``{"step": 10, "steps": 100, "loss": 0.4}``; cheap to call."""


class Progress(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Of a running stage, as far as it reports any."""

    step: int = 0
    steps: int = 0
    loss: float | UnsetType | None = UNSET


class Losses(Struct):
    """Of training, among its facts."""

    first_loss: float | None = None
    last_loss: float | None = None


class State(Struct, forbid_unknown_fields=True):
    """What is in ``state.json``.

    Attributes:
        state: what the cell is at.
        attempts: how often the cell was begun.
        seconds: spent in each stage, over all attempts.
        facts: what the finished stages returned.
        progress: of the running stage.
        reason: why it failed.
    """

    state: Literal["waiting", "finished", "failed"] | _Stage
    attempts: Count
    seconds: dict[str, float]
    facts: dict[str, dict[str, Any]]
    progress: Progress
    reason: str | None

    def __post_init__(self) -> None:
        """Refuse losses that are no numbers."""
        msgspec.convert(self.facts.get("training", {}), Losses)


class Journal:
    """The ``state.json`` of a cell's folder, written by the process that holds the cell's lock.

    Its attributes are those of :class:`State`; ``attempts`` includes this one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.json"
        state = read(folder)
        self.attempts = state.attempts + 1
        self.seconds = state.seconds
        self.facts = state.facts

    @contextmanager
    def stage(self, name: _Stage) -> Iterator[Report]:
        """Time a stage and record its reports; it counts as finished once :attr:`facts` has an entry for it."""
        before, start = self.seconds.get(name, 0.0), time.monotonic()
        last = start
        self.write(name)

        def report(progress: dict[str, Any]) -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= _SECONDS_BETWEEN_REPORTS:
                last = now
                self.seconds[name] = before + now - start
                self.write(name, progress)

        yield report
        self.seconds[name] = before + time.monotonic() - start
        self.write(name)

    def write(
        self,
        state: Literal["finished", "failed"] | _Stage,
        progress: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Record a stage, that nothing is left to do, or that the attempt failed, for a reason in one sentence."""
        stage = msgspec.convert(progress or {}, Progress)
        document = msgspec.to_builtins(State(state, self.attempts, self.seconds, self.facts, stage, reason))
        atomic.write_text(self._path, json.dumps(document, indent=1) + "\n")


def read(folder: Path) -> State:
    """The state of the cell in ``folder``.

    Raises:
        UserError: its file is not one that this program wrote.
    """
    path = folder / "state.json"
    if not path.exists():
        return State("waiting", 0, {}, {}, Progress(), None)
    try:
        return msgspec.convert(json.loads(read_utf8(path)), State)  # by json: a loss may be NaN
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not the state of a cell; remove {folder} to run the cell again") from error


@contextmanager
def lock(folder: Path) -> Iterator[bool]:
    """Lock the cell and yield True, or False at once if another process has it. A killed owner's lock is released."""
    file_lock = FileLock(folder / ".lock")
    with suppress(Timeout):
        file_lock.acquire(blocking=False)
    try:
        yield file_lock.is_locked
    finally:
        file_lock.release()


def in_use(folder: Path) -> bool:
    """Whether a process has locked the cell."""
    if not (folder / ".lock").exists():
        return False
    with lock(folder) as free:
        return not free
