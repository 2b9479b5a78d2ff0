"""One weight per vocabulary term: SPLADE and its kin."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eval_kit.models.encoder import Encoder
from eval_kit.search import shards, sparse
from eval_kit.search.encoders import batches


@dataclass(eq=False)
class Sparse(Encoder):
    """A model that weights the terms of its vocabulary; search is exact."""

    architecture = "sparse"
    library_class = "SparseEncoder"

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's weights."""
        is_cosine = self.compared_by == "cosine"
        return json.dumps(["postings", self.digest, self.passage_length, self.dtype, is_cosine])

    def encode_passages(self, texts: list[str]) -> shards.Arrays:
        """The postings of the terms; the texts are numbered in order."""
        return sparse.arrays_of(self._encode(texts, "document"))

    def hits(self, queries: Any, encodings: shards.Shards, index: Any, depth: int) -> Iterator[list[tuple[str, float]]]:
        """The most similar passages; by inner product and cosine, among those that share a term with the query."""
        return sparse.exact(queries, encodings, depth, similarity=self.compared_by)

    def _encode_in(self, size: int, texts: Sequence[str], role: str) -> Any:
        """A scipy CSR matrix (n, terms) of float32; a batch is as wide as the vocabulary until it is made sparse."""
        from scipy.sparse import csr_matrix, vstack

        encode, how = self._how(role)
        order, parts = [], []
        lengths = self._lengths(texts, role)
        for rows, dense in batches(encode, texts, size, self._pool, lengths, convert_to_sparse_tensor=False, **how):
            order.append(rows)
            nonzero = dense.nonzero(as_tuple=True)
            weights = dense[nonzero].float().cpu().numpy()
            parts.append(csr_matrix((weights, [axis.cpu().numpy() for axis in nonzero]), shape=tuple(dense.shape)))
        matrix = vstack(parts, format="csr", dtype=np.float32)[np.argsort(np.concatenate(order), kind="stable")]
        return sparse.unit(matrix) if self.compared_by == "cosine" else matrix
