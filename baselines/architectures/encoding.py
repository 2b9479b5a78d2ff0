"""Settings that all encoders of sentence-transformers share."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eval_kit.errors import UserError

LOG = logging.getLogger(__name__)
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass
class Batch:
    """Texts in a batch: the number wanted, else 32 on a CPU and 256 on a GPU; fewer, once its memory held no more."""

    size: int | None

    def of[Encoded](self, device: Any, encode: Callable[[int], Encoded]) -> Encoded:
        """What ``encode`` makes with such batches.

        Raises:
            UserError: the memory does not hold a single text.
        """
        import torch

        self.size = self.size or (32 if device.type == "cpu" else 256)
        while True:
            try:
                return encode(self.size)
            except torch.OutOfMemoryError as error:
                if self.size == 1:
                    raise UserError("the GPU's memory does not hold a single text; shorten the texts") from error
            LOG.warning("out of memory at %d texts in a batch; going on with %d", self.size, self.size // 2)
            self.size //= 2
            torch.cuda.empty_cache()


def to_precision(model: Any, precision: str) -> Any:
    """The model, its weights in ``float32``, ``bfloat16`` or ``float16``.

    Raises:
        UserError: an unknown precision.
    """
    import torch

    if precision not in PRECISIONS:
        raise UserError(f"there is no precision {precision!r}; there are {', '.join(PRECISIONS)}")
    return model if precision == "float32" else model.to(getattr(torch, precision))


def set_lengths(model: Any, lengths: Mapping[str, int | None]) -> None:
    """Cut texts after so many tokens, by role (``query``, ``document``); None leaves the model's own length."""
    transformer = model[0]
    for role, length in lengths.items():
        if length is None:
            continue
        expansion = transformer.query_expansion if role == "query" else None
        if expansion is not None:
            transformer.query_expansion = {**expansion, "length": length}
        else:
            setattr(transformer, f"{role}_length", length)
