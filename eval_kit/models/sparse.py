"""One weight per vocabulary term: SPLADE and its kin, and SPARTA."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models.encoder import Encoder
from eval_kit.models.sparta import Sparta
from eval_kit.search import shards, sparse
from eval_kit.search.encoders import longest_first, to_precision
from eval_kit.search.retriever import Passages

FORMS = ("sparta",)


@dataclass(eq=False)
class Sparse(Encoder):
    """A model that weights the terms of its vocabulary; search is exact.

    Attributes:
        form: ``sparta`` for a plain transformer trained as SPARTA; None for a checkpoint whose files say what it is.
    """

    form: str | None = None

    library_class = "SparseEncoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in (None, *FORMS):
            raise UserError(f"there is no sparse form {self.form!r}; there is {FORMS[0]}")
        checkpoint.check(self.model, "sparse", self.revision, bare=self.form is not None)

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's weights."""
        decides = [checkpoint.digest(self.model, self.revision), *([self.form] if self.form else [])]
        return json.dumps(["postings", *decides, self.passage_length, self._precision])

    def as_read(self, passages: Passages) -> Iterable[tuple[str, shards.Content]]:
        """The passages as the model reads them: as token ids where a grid stores their texts, else as texts."""
        return super().as_read(passages) if self.form is None else passages

    def encode_passages(self, texts: list[shards.Content]) -> shards.Arrays:
        """The postings of the terms; the texts are numbered in order."""
        return sparse.arrays_of(self._encode(texts, "document"))

    def hits(self, queries: Any, encodings: shards.Shards, index: Any, depth: int) -> Iterator[list[tuple[str, float]]]:
        """The passages of greatest inner product, among those that share a term with the query."""
        return sparse.exact(queries, encodings, depth)

    def _load(self, model: str) -> Any:
        if self.form is None:
            return greatest_first(super()._load(model))
        plain = Sparta(self.passage_length, model, model, self.revision, self.device, self.trust_remote_code)
        return to_precision(plain, self.encode_precision)

    def _encode_in(self, size: int, texts: Sequence[shards.Content], role: str) -> Any:
        """A scipy CSR matrix (n, terms) of float32; a batch is as wide as the vocabulary until it is made sparse."""
        from scipy.sparse import csr_matrix, vstack

        encode = self._model.encode_query if role == "query" else self._model.encode_document
        order, parts = [], []
        for rows in longest_first(list(map(len, texts)), size):
            order.append(rows)
            dense = encode(
                [texts[row] for row in rows], batch_size=size, show_progress_bar=False, convert_to_sparse_tensor=False
            )
            nonzero = dense.nonzero(as_tuple=True)
            weights = dense[nonzero].float().cpu().numpy()
            parts.append(csr_matrix((weights, [axis.cpu().numpy() for axis in nonzero]), shape=tuple(dense.shape)))
        return vstack(parts, format="csr", dtype=np.float32)[np.argsort(np.concatenate(order), kind="stable")]


def greatest_first(model: Any) -> Any:
    """The model, whose pooling takes a term's greatest logit before ReLU and log(1 + x) instead of after.

    Both functions are monotone, so the weights are the same bit for bit; but the functions see one row for a text
    instead of one for a token, in less than half of the memory. A sum of weights cannot be taken so.
    """
    import torch

    pooling = model[-1]
    if getattr(pooling, "pooling_strategy", "") != "max" or pooling.activation_function != "relu":
        return model
    by_token = pooling.forward

    def forward(features: dict[str, Any]) -> dict[str, Any]:
        if "cu_seq_lens_q" in features:  # texts without padding, one after the other
            return by_token(features)  # type: ignore[no-any-return]
        logits = features["token_embeddings"]
        mask = features["attention_mask"].unsqueeze(-1).to(logits.dtype)
        if logits.requires_grad:
            greatest = (logits * mask).max(1).values
        else:  # in place, as a second copy is half of the memory; amax is three times as fast, but divides gradients
            greatest = torch.mul(logits, mask, out=logits).amax(1)
        pooling.embedding_dimension = pooling.embedding_dimension or greatest.shape[1]
        return features | {"sentence_embedding": torch.log1p(torch.relu(greatest))}

    pooling.forward = forward
    return model
