"""Settings that all encoders of sentence-transformers share."""

from collections.abc import Mapping
from typing import Any

from eval_kit.errors import UserError

PRECISIONS = ("float32", "bfloat16", "float16")


def batch_size(wanted: int | None, device: Any) -> int:
    """Texts in a batch: the number wanted, else 32 on a CPU and 256 on a GPU."""
    return wanted or (32 if device.type == "cpu" else 256)


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
