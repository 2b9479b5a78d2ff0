"""Words that go with a number or with a list, as English has them."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """The number with its noun, which gets an *s* unless there is one: ``counted(1, "query")`` is "1 query"."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeo" else f"{noun}s"
    return f"{number:,} {plural}"


def joined(names: Sequence[str]) -> str:
    """The names in a sentence: ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
