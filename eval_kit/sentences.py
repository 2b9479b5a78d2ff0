"""Words that go with a number or with a list, as English has them."""

from collections.abc import Callable, Sequence
from typing import Any


def counted(number: int, noun: str) -> str:
    """The number with its noun, which gets an *s* unless there is one: ``counted(1, "query")`` is "1 query"."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeo" else f"{noun}s"
    return f"{number:,} {plural}"


def joined(names: Sequence[str]) -> str:
    """The names in a sentence: ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def most_telling[Item](items: Sequence[Item], weight: Callable[[Item], Any], most: int) -> tuple[list[Item], int]:
    """The weightiest items, the weightiest first, and how many more there are: what is left out is said."""
    in_order = sorted(items, key=weight, reverse=True)
    return in_order[:most], max(len(items) - most, 0)


def weightiest(found: Sequence[tuple[float, str]], noun: str) -> list[str]:
    """The three sentences with the greatest weights, and of how many more of this ``noun`` they could be said."""
    named, rest = most_telling(found, lambda each: each[0], 3)
    return [
        *(sentence for _, sentence in named),
        *([f"The same holds for {counted(rest, f'more {noun}')}"] if rest else []),
    ]


def in_table(rest: int, noun: str) -> list[str]:
    """The sentence on what the sentences before it leave to the table, if that is anything."""
    return [f"The table has {counted(rest, f'more {noun}')}."] * bool(rest)


def and_more(rest: int, noun: str = "") -> str:
    """What stands behind the weightiest: `` and 3 more``; empty if that is all."""
    return f" and {rest:,} more{f' {noun}' if noun else ''}" if rest else ""
