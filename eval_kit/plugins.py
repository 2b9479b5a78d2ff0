"""What other packages add, by entry points: ``ms_marco_shift.measures``, ``.divisions`` and ``.questions``.

They are looked for only where a name is not the kit's own, as reading the metadata of all packages takes time.
"""

from typing import Any, Literal

type Group = Literal["measures", "divisions", "questions"]


def names(group: Group) -> list[str]:
    """The names that other packages give."""
    from importlib.metadata import entry_points  # which plain scoring does without

    return sorted(entry_points(group=f"ms_marco_shift.{group}").names)


def named(group: Group, name: str) -> Any:
    """What one of them stands for; None if there is none of that name."""
    from importlib.metadata import entry_points

    found = list(entry_points(group=f"ms_marco_shift.{group}", name=name))
    return found[0].load() if found else None
