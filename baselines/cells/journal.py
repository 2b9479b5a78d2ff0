"""The state of a cell, kept in its folder: the stage it has reached, what each stage took, and a lock."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.schemas import SchemaError, validate
from eval_kit.files.text import read_utf8

STAGES = ("training", "indexing", "searching", "scoring")
SECONDS_BETWEEN_REPORTS = 1.0

type Report = Callable[[dict[str, Any]], None]
"""Takes the progress of a running stage, such as ``{"step": 10, "steps": 100, "loss": 0.4}``; cheap to call."""


class Journal:
    """The ``state.json`` of a cell's folder, written by the process that holds the cell's lock.

    Attributes:
        attempts: how often the cell was begun, this time included.
        seconds: spent in each stage, over all attempts.
        facts: what the finished stages returned.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.json"
        known = read(folder)
        self.attempts: int = known["attempts"] + 1
        self.seconds: dict[str, float] = known["seconds"]
        self.facts: dict[str, dict[str, Any]] = known["facts"]

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """Time a stage and record its reports; it counts as finished once :attr:`facts` has an entry for it."""
        before, begun = self.seconds.get(name, 0.0), time.monotonic()
        last = begun
        self._write(name)

        def report(progress: dict[str, Any]) -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= SECONDS_BETWEEN_REPORTS:
                last = now
                self.seconds[name] = before + now - begun
                self._write(name, progress)

        yield report
        self.seconds[name] = before + time.monotonic() - begun
        self._write(name)

    def finished(self) -> None:
        """Record that nothing is left to do."""
        self._write("finished")

    def failed(self, reason: str) -> None:
        """Record that the attempt failed; ``reason`` is one sentence."""
        self._write("failed", reason=reason)

    def _write(self, state: str, progress: Mapping[str, Any] | None = None, reason: str | None = None) -> None:
        document = {
            "state": state,
            "attempts": self.attempts,
            "seconds": self.seconds,
            "facts": self.facts,
            "progress": dict(progress or {}),
            "reason": reason,
        }
        atomic.write_text(self._path, json.dumps(document, indent=1) + "\n")


def read(folder: Path) -> dict[str, Any]:
    """``state``, ``attempts``, ``seconds``, ``facts``, ``progress`` and, for a failed cell, ``reason`` (else None)."""
    path = folder / "state.json"
    nothing = {"state": "waiting", "attempts": 0, "seconds": {}, "facts": {}, "progress": {}, "reason": None}
    if not path.exists():
        return nothing
    try:
        document: dict[str, Any] = json.loads(read_utf8(path))  # a loss may be NaN
        validate("state", document)
    except (ValueError, RecursionError, SchemaError) as error:
        raise UserError(f"{path}: is not the state of a cell; remove {folder} to run the cell again") from error
    return document


@contextmanager
def lock(folder: Path) -> Iterator[bool]:
    """Lock the cell and yield True, or False at once if another process has it. A killed owner's lock is released."""
    file_lock = FileLock(folder / ".lock")
    try:
        file_lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        file_lock.release()


def in_use(folder: Path) -> bool:
    """Whether a process has locked the cell."""
    if not (folder / ".lock").exists():
        return False
    with lock(folder) as free:
        return not free
