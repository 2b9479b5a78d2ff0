"""Processes, which end when the process that started them does, however that ends."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from typing import Any


def cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def pool(processes: int, begin: Callable[..., None] | None = None, *arguments: Any) -> Iterator[Executor]:
    """A pool of processes, each of which calls ``begin`` first; an error or a signal in the block ends them at once."""
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (begin, arguments)) as executor:
        try:
            yield executor
        except BaseException:
            for process in active_children():
                process.terminate()
            raise


def end_with_parent() -> None:
    """End this process, whatever it is doing, when the one that started it has ended; Ctrl-C is left to that one."""
    parent = parent_process()
    assert parent is not None
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    end_with_parent()
    if begin is not None:
        begin(*arguments)
