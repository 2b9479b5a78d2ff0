"""How many tokens each text of a batch has, known to the CPU: reading them from a GPU would wait for it."""

from typing import Any

import torch

KEY = "lengths"


class Lengths(torch.Tensor):
    """A tensor (texts,) that stays on the CPU when its batch is moved, and is cut and joined like the others."""

    def to(self, *_: Any, **__: Any) -> "Lengths":
        """Itself."""
        return self


def of(mask: torch.Tensor) -> Lengths:
    """The lengths of texts, from their attention mask (texts, tokens) on the CPU."""
    return mask.sum(1).as_subclass(Lengths)
