"""SPARTA (Zhao et al., 2021) as BEIR trained it: a plain transformer, and the input embeddings of its vocabulary.

As in BEIR's ``SPARTA`` class: a term's weight in a passage is log(1 + max(0, s)), where s is the greatest dot product
of the term's input embedding with the passage's token vectors; the 2,000 greatest weights are kept. A query is its
tokens. Unlike there, padding does not affect a passage's weights.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from eval_kit.models.bare import Plain

if TYPE_CHECKING:
    from torch import Tensor

TERMS = 2_000
"""Weights kept per passage."""
LENGTH = 500
"""Tokens of a passage."""


class Sparta(Plain):
    """A model with the two encoding methods that :class:`eval_kit.models.sparse.Sparse` calls."""

    def __init__(self, passage_length: int | None, *plain: Any) -> None:
        super().__init__(*plain)
        self._length = passage_length or LENGTH

    def to(self, where: Any) -> Self:
        """Move to a device, or convert to a data type."""
        super().to(where)
        self._terms = self._model.get_input_embeddings().weight.detach()[: len(self._tokenizer)].clone()
        self._terms[self._tokenizer.all_special_ids] = 0
        return self

    def encode_query(self, texts: Sequence[str], **_: Any) -> "Tensor":
        """(n, terms): how often each term is in the query."""
        import torch

        counts = torch.zeros(len(texts), len(self._terms))
        for row, tokens in enumerate(self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]):
            counts[row].index_add_(0, torch.tensor(tokens, dtype=torch.long), torch.ones(len(tokens)))
        return counts

    def encode_document(self, texts: Sequence[str], **_: Any) -> "Tensor":
        """(n, terms): the weights, most of them 0."""
        import torch

        inputs = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._length, return_tensors="pt"
        ).to(self.device)
        weights = []
        with torch.inference_mode():
            states = self._model(**inputs).last_hidden_state
            for vectors, mask in zip(states, inputs["attention_mask"], strict=True):
                greatest = (vectors[mask.bool()] @ self._terms.T).amax(0)
                terms = greatest.relu().log1p().topk(min(TERMS, len(greatest)))
                weights.append(torch.zeros_like(greatest).scatter(0, terms.indices, terms.values))
        return torch.stack(weights)
