"""What is wrong with a file, line by line."""

from eval_kit.errors import UserError

SHOWN_FAULTS = 5
MOST_FAULTS = 10_000
"""With this many, the fault is the file's rather than a line's, and the rest are not counted."""


class RunError(UserError):
    """A run that cannot be used: ``file:line: what is wrong`` for the first faults, and how many more."""


class Faults:
    """The faults found so far in one file; raised together, the first few in words, the rest as a count.

    On reaching :data:`MOST_FAULTS` they are raised at once.
    """

    def __init__(self, source: object) -> None:
        """``source`` is what messages call the file: its path, or a run."""
        self.source = source
        self.shown: list[str] = []
        self.count = 0

    def add(self, line: int, what: str) -> None:
        """Note that ``what`` is wrong on ``line`` (from 1)."""
        if self.count < SHOWN_FAULTS:
            self.shown.append(f"{self.source}:{line}: {what}")
        self.count += 1
        if self.count == MOST_FAULTS:
            raise RunError(f"{'; '.join(self.shown)}; and at least {self.count - SHOWN_FAULTS:,} more")

    def raise_any(self) -> None:
        """Raise a :class:`RunError` if anything was noted."""
        if self.count:
            more = f"; and {self.count - len(self.shown):,} more" if self.count > len(self.shown) else ""
            raise RunError("; ".join(self.shown) + more)
