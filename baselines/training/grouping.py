"""Training batches embedded in groups of texts of similar length, so that a model reads little padding.

The batch does not change, nor do its embeddings and gradients (but for dropout's draws): only what is computed at once
changes. When 256 passages of MS MARCO are padded to the longest, more than half of the tokens are padding.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 32
"""Texts embedded at once; no experiment chose it, as embeddings and gradients are the same with any."""


def by_length(model: Any, output: str = "sentence_embedding") -> None:
    """Make a model embed (or score) each training batch in groups, with the texts ordered by length.

    It returns only ``output``, one row per text: accelerate would make a float32 copy of everything else, such as
    SPLADE's logits.
    """
    import torch

    whole = model.forward

    def forward(features: dict[str, Any], **options: Any) -> dict[str, "Tensor"]:
        def vectors(part: dict[str, Any]) -> "Tensor":
            rows: Tensor = whole(part, **options)[output]
            return rows

        mask = features.get("attention_mask")
        # padding on the left could not be cut off
        if mask is None or not model.training or len(mask) <= GROUP or model.tokenizer.padding_side != "right":
            return {output: vectors(features)}
        widths, order = mask.sum(1).cpu().sort(stable=True)  # the one place of a step that waits for the GPU
        parts = []
        for start, rows in zip(range(0, len(order), GROUP), order.split(GROUP), strict=True):
            group, width = rows.to(mask.device, non_blocking=True), int(widths[start : start + GROUP].max())
            parts.append(vectors({name: _rows(value, group, width) for name, value in features.items()}))
        return {output: torch.cat(parts)[order.argsort().to(mask.device, non_blocking=True)]}

    model.forward = forward


def _rows(value: Any, rows: "Tensor", width: int) -> Any:
    """The rows of a tensor (texts, tokens) up to a width; other values unchanged."""
    return value[rows, :width] if getattr(value, "ndim", 0) == 2 else value
