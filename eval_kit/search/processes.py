"""Calls shared among processes, which end when the process that started them does, however that ends."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

AHEAD = 32
"""Calls that are given to other processes before the first of them is done."""


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


def map_in_order[Result](
    executor: Executor, function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]
) -> Iterator[Result]:
    """Like :class:`itertools.starmap`, by threads, or by other processes that can import ``function``.

    The calls are read no further than ``AHEAD`` of the results.
    """
    pending: deque[Future[Result]] = deque()
    for arguments in calls:
        pending.append(executor.submit(function, *arguments))
        if len(pending) == AHEAD:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
