"""The one reader of what hosts send: no answer without end, and none that trickles."""

import time
from collections.abc import Iterable, Iterator

MOST_BYTES = 2 << 30
"""Of a file."""
MOST_ANSWER = 64 << 20
"""Bytes of an answer that is kept in memory."""
SILENCE = 60.0
"""Seconds."""
SLOWEST = 1 << 10
"""Bytes a second: what sends less for :data:`SILENCE` is silent."""


class EndlessError(Exception):
    """An answer of more bytes than any that is right, or packed so that it might become one."""


def at_most(chunks: Iterable[bytes], most: int = MOST_BYTES) -> Iterator[bytes]:
    """The chunks of an answer as they come; whoever waits for one must limit that wait.

    Raises:
        EndlessError: more than ``most`` bytes.
        TimeoutError: less than :data:`SLOWEST` a second for :data:`SILENCE` seconds.
    """
    total = in_window = 0
    window = time.monotonic()
    for chunk in chunks:
        total += len(chunk)
        in_window += len(chunk)
        if total > most:
            raise EndlessError(f"it has more than {most:,} bytes")
        if (now := time.monotonic()) - window > SILENCE:
            if in_window < SLOWEST * SILENCE:
                raise TimeoutError
            window, in_window = now, 0
        yield chunk
