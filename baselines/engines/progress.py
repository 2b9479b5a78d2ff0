"""A progress line on standard error with speed and time left, for what takes more than two seconds."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager

COUNT_EVERY = 1_000
PATIENCE = 2.0
"""Seconds before the line appears."""


@contextmanager
def counting(what: str, unit: str, total: int | None = None) -> Iterator[Callable[[int, bool], None]]:
    """Yields the function that counts on: how many more, and whether they were done before (no part of the speed)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    ]
    line = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    )
    task = line.add_task(what, total=total, speed="")
    begun = time.monotonic()
    new = 0
    shown = False

    def advance(steps: int, known: bool = False) -> None:
        nonlocal new, shown
        seconds = time.monotonic() - begun
        new += 0 if known else steps
        line.update(task, advance=steps, speed=f"{new / max(seconds, 1e-9):,.0f} {unit}/s" if new else "")
        if not shown and line.console.is_terminal and seconds > PATIENCE:
            line.start()
            shown = True

    try:
        yield advance
    finally:
        if shown:
            line.stop()


def counted[Item](items: Iterable[Item], what: str, unit: str) -> Iterator[Item]:
    """The items as they are, counted on a progress line."""
    total = len(items) if isinstance(items, Sized) else None
    with counting(what, unit, total) as advance:
        for batch in itertools.batched(items, COUNT_EVERY):
            yield from batch
            advance(len(batch), False)
