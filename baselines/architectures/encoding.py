"""Settings shared by all sentence-transformers encoders, and how they are run batch by batch."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError

LOG = logging.getLogger(__name__)
PRECISIONS = ("float32", "bfloat16", "float16")
STORES = ("float32", "float16")


@dataclass
class Batch:
    """Texts in a batch: the number given, else 32 on a CPU and 256 on a GPU; fewer after running out of memory."""

    size: int | None

    def of[Encoded](self, device: Any, encode: Callable[[int], Encoded]) -> Encoded:
        """What ``encode`` returns with such batches.

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
                    raise UserError("the GPU's memory cannot hold a single text; shorten the texts") from error
            LOG.warning("out of memory at %d texts in a batch; continuing with %d", self.size, self.size // 2)
            self.size //= 2
            torch.cuda.empty_cache()


def precision_of(name: str | None) -> str:
    """The precision of a model's arithmetic: the one named, else ``float16`` on a GPU and ``float32`` on a CPU.

    Raises:
        UserError: an unknown precision.
    """
    import torch

    if name not in (None, *PRECISIONS):
        raise UserError(f"there is no precision {name!r}; there are {', '.join(PRECISIONS)}")
    return name or ("float16" if torch.cuda.is_available() else "float32")


def to_precision(model: Any, precision: str | None) -> Any:
    """The model with its weights in :func:`precision_of`."""
    import torch

    chosen = precision_of(precision)
    return model if chosen == "float32" else model.to(getattr(torch, chosen))


def store_of(name: str | None, precision: str | None) -> str:
    """The type of vectors on disk: the one named, else ``float16`` where the arithmetic has 16 bits too."""
    return name or ("float32" if precision_of(precision) == "float32" else "float16")


def check_store(name: str | None) -> None:
    """Refuse a type that is not in ``STORES``."""
    if name not in (None, *STORES):
        raise UserError(f"vectors cannot be stored as {name!r}; there are {', '.join(STORES)}")


def batches(
    model: Any, inputs: Sequence[Any], lengths: Sequence[int], size: int, **options: Any
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """A model's output for each batch, longest first; nothing waits for the GPU.

    Args:
        model: of sentence-transformers.
        inputs: texts, token ids or pairs.
        lengths: by which the inputs are sorted.
        size: inputs in a batch.
        options: of its ``preprocess``; ``task`` is also passed to the model.

    Yields:
        Positions of the batch among the inputs, and the features that the model returns.
    """
    import torch
    from sentence_transformers.util import batch_to_device

    model.eval()
    task = {"task": options["task"]} if "task" in options else {}
    order = np.argsort([-length for length in lengths], kind="stable")
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        features = model.preprocess([inputs[row] for row in rows], **options)
        with torch.inference_mode():
            yield rows, model(batch_to_device(features, model.device), **task)


def set_lengths(model: Any, lengths: Mapping[str, int | None]) -> None:
    """Set the tokens after which texts are cut, by role (``query``, ``document``); None keeps the model's length."""
    transformer = model[0]
    for role, length in lengths.items():
        if length is None:
            continue
        expansion = transformer.query_expansion if role == "query" else None
        if expansion is not None:
            transformer.query_expansion = {**expansion, "length": length}
        else:
            setattr(transformer, f"{role}_length", length)
