"""One vector per text: bi-encoders."""

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models.encoder import Encoder
from eval_kit.search import dense, shards
from eval_kit.search.encoders import check_store, store_of, with_pooling

SIMILARITIES = {"dot": False, "cosine": True}
"""Whether vectors are scaled to unit length."""


@dataclass(eq=False)
class Dense(Encoder):
    """A model that encodes a text as one vector; search is exact.

    Attributes:
        model: encodes the passages, and the queries unless ``query_model`` is given.
        pooling: sentence-transformers' name (``cls``, ``mean``), for a transformer that has no pooling layer.
        similarity: ``dot`` or ``cosine``; None for the checkpoint's own.
        query_model: Hub id or folder of a second encoder (DPR).
        query_prompt: text before each query; None for the checkpoint's own.
        passage_prompt: text before each passage.
        title_separator: between the title and text of a passage in BEIR's format.
        store: of the vectors on disk: ``float32`` or ``float16``; None for as many bits as the arithmetic has.
    """

    pooling: str | None = None
    similarity: str | None = None
    query_model: str | None = None
    query_prompt: str | None = None
    passage_prompt: str | None = None
    title_separator: str = " "
    store: str | None = None

    library_class = "SentenceTransformer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.similarity is not None and self.similarity not in SIMILARITIES:
            raise UserError(f"there is no similarity {self.similarity!r}; there are {', '.join(SIMILARITIES)}")
        check_store(self.store)
        self.query_model = self.query_model or self.model
        for encoder in {self.model, self.query_model}:
            checkpoint.check(encoder, "dense", self._revision_of(encoder), bare=self.pooling is not None)

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's vector."""
        decides = [checkpoint.digest(self.model, self.revision), self.pooling, self._unit, self.passage_prompt]
        numbers = [self._precision, store_of(self.store, self.encode_precision)]
        return json.dumps(["dense", *decides, self.passage_length, *numbers])

    def encode_passages(self, texts: list[str]) -> shards.Arrays:
        """``vectors``: (n, d), in the order of the texts."""
        store = store_of(self.store, self.encode_precision)
        return {"vectors": self._encode(texts, "document").astype(store, copy=False)}

    def hits(
        self, queries: dense.Vectors, encodings: shards.Shards, index: Any, depth: int
    ) -> Iterator[list[tuple[str, float]]]:
        """The passages of greatest inner product."""
        return dense.exact(queries, encodings, depth)

    @property
    def _unit(self) -> bool:
        similarity = self.similarity or getattr(self._model, "similarity_fn_name", "dot")
        if similarity not in SIMILARITIES:
            raise UserError(f"{self.model}: its similarity, {similarity}, cannot be searched by inner product")
        return SIMILARITIES[similarity]

    @cached_property
    def _query_model(self) -> Any:
        return self._model if self.query_model == self.model else self._load(str(self.query_model))

    def _load(self, model: str) -> Any:
        if self.pooling is None:
            encoder = super()._load(model)
            self._warn_of_prompts(model, encoder)
            return encoder
        return self._prepare(with_pooling(model, self.pooling, self._revision_of(model), self.trust_remote_code))

    def _warn_of_prompts(self, name: str, model: Any) -> None:
        """Say so where a model has prompts, but under no name by which sentence-transformers would use them."""
        names_in_use = {"query", "document", "passage", "corpus", model.default_prompt_name}
        others = [prompt for prompt, text in model.prompts.items() if text and prompt not in names_in_use]
        if others and not any(model.prompts.get(prompt) for prompt in names_in_use) and self.query_prompt is None:
            names = ", ".join(others)
            warnings.warn(
                f"{name}: its prompts ({names}) are not used, as none is called query or document; give the "
                "texts with --option query_prompt=TEXT and passage_prompt=TEXT",
                stacklevel=2,
            )

    def _encode_in(self, size: int, texts: Sequence[str], role: str) -> NDArray[np.float32]:
        """(n, d) float32."""
        is_query = role == "query"
        model = self._query_model if is_query else self._model
        vectors = (model.encode_query if is_query else model.encode_document)(
            texts,
            prompt=self.query_prompt if is_query else self.passage_prompt,
            batch_size=size,
            normalize_embeddings=self._unit,
            show_progress_bar=False,
            convert_to_tensor=True,
            pool=self._pool,
        )
        return np.asarray(vectors.float().cpu().numpy(), np.float32)
