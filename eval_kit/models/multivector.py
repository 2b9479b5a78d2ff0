"""One vector per token: ColBERT and its kin."""

import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.models.encoder import Encoder
from eval_kit.search import late, shards
from eval_kit.search.dense import unit
from eval_kit.search.encoders import batches, store_of
from eval_kit.search.retriever import Passages


@dataclass(eq=False)
class MultiVector(Encoder):
    """A model that encodes each token as a vector.

    Attributes:
        engine: ``exact`` or ``plaid`` (fast-plaid); None for plaid from a million passages on, else exact.
        store: of the vectors on disk: ``float32`` or ``float16``; None for as many bits as the arithmetic has.
        truncate_dim: numbers of each vector that are kept, its first ones; unit vectors are made so again.
        similarity: ``cosine``, or ``l2`` for ColBERT v0.2's exact search, where a masked token is a zero vector.
    """

    engine: str | None = None
    store: str | None = None
    truncate_dim: int | None = None
    similarity: str = "cosine"

    architecture = "multivector"
    library_class = "MultiVectorEncoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine not in (None, *late.ENGINES):
            engines = ", ".join(late.ENGINES)
            raise UserError(f"Unknown late-interaction engine {self.engine!r}", do=f"Choose from: {engines}")
        if self.similarity not in ("cosine", "l2"):
            raise UserError(f"Unknown similarity {self.similarity!r}", do="Choose from: cosine, l2")
        store_of(self.store, self.encode_precision)  # refuses

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's vectors."""
        numbers = [self.dtype, store_of(self.store, self.encode_precision)]
        return json.dumps(["multivector", self.digest, self.passage_length, *numbers])

    def encode_passages(self, texts: list[str]) -> shards.Arrays:
        """``tokens`` (all tokens, d), text after text, and ``lengths`` (n,)."""
        vectors = self._encode(texts, "document")
        return {"tokens": np.concatenate(vectors), "lengths": np.array(list(map(len, vectors)), np.int32)}

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks, and build their index."""
        count = operator.length_hint(passages)
        if late.engine_for(count, self.engine) == "plaid" and find_spec("fast_plaid") is None:
            raise UserError(f"{count:,} passages need fast-plaid", do="Install it, or add --option engine=exact")
        super().index(passages, folder)

    def build(self, encodings: shards.Shards, folder: Path) -> None:
        """Make PLAID's index, if that is the engine."""
        late.build(encodings, late.engine_for(len(encodings), self.engine), folder)

    def open(self, encodings: shards.Shards, folder: Path) -> Any:
        """PLAID's index, if that is the engine."""
        if late.engine_for(len(encodings), self.engine) == "exact":
            return None
        return late.load(encodings, folder)

    def hits(
        self, queries: late.Tokens, encodings: shards.Shards, index: Any, depth: int
    ) -> Iterator[list[tuple[str, float]]]:
        """The passages with the greatest MaxSim."""
        if index is None:
            return late.exact(queries, encodings, depth, least=0.0 if self.similarity == "l2" else None)
        return late.plaid(queries, index, encodings, depth)

    def _encode_in(self, size: int, texts: Sequence[str], role: str) -> list[NDArray[Any]]:
        """For each text its vectors, (tokens, d); queries' are float32."""
        encode, how = self._how(role)
        store = "float32" if role == "query" else store_of(self.store, self.encode_precision)
        vectors: list[NDArray[Any]] = [np.empty(0)] * len(texts)
        lengths = self._lengths(texts, role)
        for rows, arrays in batches(encode, texts, size, self._pool, lengths, convert_to_numpy=True, **how):
            for row, array in zip(rows, arrays, strict=True):
                vectors[row] = self._truncated(array).astype(store, copy=False)
        return vectors

    def _truncated(self, tokens: NDArray[Any]) -> NDArray[Any]:
        if self.truncate_dim is None:
            return tokens
        if self.truncate_dim > (width := tokens.shape[1]):
            raise UserError(f"truncate_dim is {self.truncate_dim}, but the model gives {width} numbers")
        kept = tokens[:, : self.truncate_dim]
        is_unit = any(type(module).__name__ == "Normalize" for module in self._model)
        return unit(kept) if is_unit else kept
