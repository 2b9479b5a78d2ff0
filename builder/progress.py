"""A progress bar, for what takes more than two seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0
"""Seconds before a progress bar appears."""


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error for what takes more than two seconds; yields the function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
    task = bar.add_task(what, total=total)
    began = time.monotonic()
    shown = False

    def advance(steps: int) -> None:
        nonlocal shown
        bar.advance(task, steps)
        if not shown and bar.console.is_terminal and time.monotonic() - began > PATIENCE:
            bar.start()
            shown = True

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
