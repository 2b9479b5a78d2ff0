"""Console output: a screen that is wide enough in a file or pipe too, progress, and files that overwrite no input."""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from eval_kit.errors import printable
from eval_kit.files import atomic

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.status import Status

WIDTH_OF_A_FILE = 160
COUNT_EVERY = 1_000
PATIENCE = 2.0
"""Seconds before the line appears."""
SECONDS_A_LINE = 30.0
"""Between two progress lines in a log or a pipe, where no moving line can be drawn."""


def screen() -> Console:
    """The console for results; as wide as tables need where the output is a file or a pipe."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console()
    return Console(width=WIDTH_OF_A_FILE)


def write_json(document: Any, path: Path | None) -> bool:
    """Write results as JSON, if requested: to a file, or for ``-`` to the screen.

    Returns:
        Whether they went to the screen, where nothing else should follow.
    """
    if path is None:
        return False
    if path == Path("-"):
        sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
        return True
    atomic.write_text(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return False


_statuses: list["Status"] = []
"""The line that says what is being done, the last one if there are several; none outside :func:`status`."""


@contextmanager
def status(what: str) -> Iterator[None]:
    """Show on a terminal what is being done within the block, and which run is :func:`reading`."""
    with Console(stderr=True).status(what) as line:
        _statuses.append(line)
        try:
            yield
        finally:
            _statuses.remove(line)


def reading(run: Path) -> None:
    """Say that a run is being read, where a command shows what it does; silent everywhere else."""
    for line in _statuses[-1:]:
        line.update(Text(f"reading {printable(run.name)}"))


@contextmanager
def counting(what: str, unit: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show progress; yields the function that adds steps, ``is_total`` if an earlier call did them: they have no speed.

    A terminal shows a moving line after :data:`PATIENCE`; anything else gets a line every :data:`SECONDS_A_LINE`. Both
    say how much is done, how fast, and the time left.
    """
    start = last_line = time.monotonic()
    new = done = 0
    terminal = Console(stderr=True)
    line: Progress | None = None

    def advance(steps: int, is_total: bool = False) -> None:
        nonlocal new, done, line, last_line
        now = time.monotonic()
        done += steps
        new += 0 if is_total else steps
        if now - start <= PATIENCE or not (terminal.is_terminal or now - last_line > SECONDS_A_LINE):
            return
        of_all = f" of {total:,}" if total else ""
        speed = new / (now - start)
        has_speed = new > steps  # the first step waits for a model to load, or for a whole batch
        rate = f", {speed:,.0f} {unit}/s" if has_speed else ""
        remaining_time = f", {_duration((total - done) / speed)} left" if total and has_speed and done < total else ""
        state = f"{done:,}{of_all} {unit}{rate}{remaining_time}"
        if not terminal.is_terminal:
            last_line = now
            print(f"{what}: {state}", file=sys.stderr, flush=True)
            return
        if line is None:
            line = _moving_line(terminal, what, total)
            line.start()
        line.update(line.task_ids[0], completed=done, state=state)

    try:
        yield advance
    finally:
        if line is not None:
            line.stop()


def _moving_line(terminal: Console, what: str, total: int | None) -> "Progress":
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}")
    line = Progress(*columns, console=terminal, transient=True, redirect_stdout=False, redirect_stderr=False)
    line.add_task(what, total=total, state="")
    return line


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def with_count[Item](items: Iterable[Item], what: str, unit: str) -> Iterator[Item]:
    """Yield the items unchanged, counting them on a progress line."""
    total = len(items) if isinstance(items, Sized) else None
    with counting(what, unit, total) as advance:
        for batch in itertools.batched(items, COUNT_EVERY):
            yield from batch
            advance(len(batch), False)
