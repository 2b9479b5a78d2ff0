"""Console output: a screen that is wide enough in a file or pipe too, progress, and files that overwrite no input."""

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from eval_kit.errors import end_of_pipe, printable
from eval_kit.files import atomic

if TYPE_CHECKING:
    from rich.status import Status

_WIDTH_OF_A_FILE = 160
_COUNT_EVERY = 1_000
SECONDS_TO_THE_FIRST, SECONDS_A_LINE = 4.0, 30.0
"""Before and between progress lines in a log or a pipe, where no moving line can be drawn."""


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """End as other programs do; rich's own status, 1, is an answer of some commands."""
        end_of_pipe()


def screen() -> Console:
    """The console for results; as wide as tables need where the output is a file or a pipe."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return _Screen()
    return _Screen(width=_WIDTH_OF_A_FILE)


def write_json(document: Any, path: Path | None) -> bool:
    """Write results as JSON, if requested: to a file, or for ``-`` to the screen.

    Returns whether they went to the screen, where nothing else should follow.
    """
    if path is None:
        return False
    if path == Path("-"):
        sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
        return True
    atomic.write_text(path, as_text(document))
    return False


def as_text(document: Any) -> str:
    """JSON as files of it are written."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_statuses: list["Status"] = []
"""The line that says what is being done, the last one if there are several; none outside :func:`status`."""


@contextmanager
def status(what: str) -> Iterator[None]:
    """Show on a terminal what is being done within the block, and which run is :func:`reading`."""
    if not sys.stderr.isatty():
        yield
        return
    line = Console(stderr=True).status(what)
    with suppress(RuntimeError):
        line.start()
    _statuses.append(line)
    try:
        yield
    finally:
        _statuses.remove(line)
        with suppress(RuntimeError):
            line.stop()


def reading(run: str) -> None:
    """Say that the run of this name is being read, where that is shown (:func:`status`); silent everywhere else."""
    for line in _statuses[-1:]:
        line.update(Text(f"reading {printable(run)}"))


@contextmanager
def counting(what: str, unit: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show progress; yields the function that adds steps.

    A terminal shows a moving line with the time left; a log gets a plain line after :data:`SECONDS_TO_THE_FIRST`, and
    then every :data:`SECONDS_A_LINE`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    terminal, what = Console(stderr=True), printable(what)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    line = Progress(*columns, console=terminal, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = line.add_task(what, total=total)
    last_line, last_count = time.monotonic(), 0.0

    def say() -> None:
        nonlocal last_line, last_count
        seconds, count = time.monotonic() - last_line, line.tasks[0].completed
        of_all = f" of {total:,}" if total else ""
        speed = (count - last_count) / max(seconds, 1e-9)
        left = f", {timedelta(seconds=round((total - count) / speed))} left" if total and speed > 0 else ""
        last_line, last_count = time.monotonic(), count
        print(f"{what}: {count:,.0f}{of_all} {unit}{left}", file=sys.stderr, flush=True)

    def advance(steps: int) -> None:
        line.advance(task, steps)
        if not terminal.is_terminal and time.monotonic() - last_line > SECONDS_A_LINE:
            say()

    if not terminal.is_terminal:
        first_line = threading.Timer(SECONDS_TO_THE_FIRST, say)
        first_line.daemon = True
        with suppress(RuntimeError):  # no thread under a limit of memory: the work goes on without a line
            first_line.start()
        try:
            yield advance
        finally:
            first_line.cancel()
        return
    with suppress(RuntimeError):
        line.start()
    try:
        yield advance
    finally:
        with suppress(RuntimeError):
            line.stop()


def with_count[Item](items: Iterable[Item], what: str, unit: str) -> Iterator[Item]:
    """Yield the items unchanged, counting them on a progress line."""
    total = len(items) if isinstance(items, Sized) else None
    with counting(what, unit, total) as advance:
        for batch in itertools.batched(items, _COUNT_EVERY):
            yield from batch
            advance(len(batch))
