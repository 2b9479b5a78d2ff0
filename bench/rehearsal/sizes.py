"""How much there is of everything at a share of MS MARCO's size."""

from dataclasses import dataclass

PASSAGES, TRAIN, TEST, VALIDATION = 8_841_823, 500_000, 57_000, 1_600
EXAMPLES = 12_800_000
"""Of the config ``paper``: 100,000 steps of 128."""


@dataclass(frozen=True)
class Sizes:
    """Passages, queries, and the examples and steps of trainings."""

    passages: int
    train: int
    test: int
    validation: int
    examples: int
    steps: int = 200


def of(scale: float) -> Sizes:
    """The sizes at ``scale`` of MS MARCO's."""
    counts = [max(1, round(scale * full)) for full in (PASSAGES, TRAIN, TEST, VALIDATION, EXAMPLES)]
    return Sizes(*counts)
