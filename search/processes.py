"""Calls shared out over processes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

AHEAD = 32
"""Calls that are given to other processes before the first of them is done."""


def in_order[Result](
    executor: Executor | None, function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]
) -> Iterator[Result]:
    """What ``function`` returns for each call's arguments, in their order.

    Args:
        executor: of the processes; None for this one, which makes each call when its result is wanted.
        function: that other processes can import.
        calls: read no further than ``AHEAD`` of the results.
    """
    if executor is None:
        yield from (function(*arguments) for arguments in calls)
        return
    pending: deque[Future[Result]] = deque()
    for arguments in calls:
        pending.append(executor.submit(function, *arguments))
        if len(pending) == AHEAD:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
