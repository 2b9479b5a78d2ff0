"""One vector per text: bi-encoders."""

import json
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models import checkpoints
from eval_kit.models.encoder import Encoder
from eval_kit.search import dense, shards
from eval_kit.search.dense import SIMILARITIES
from eval_kit.search.encoders import batches, store_of

_WITH_PREFIXES = re.compile(
    r"\b(e5|bge|nomic-embed|instructor|gte-qwen2|qwen3-embedding|mxbai-embed|uae-large)\b", re.I
)
"""Names of models whose prefixes stand in their cards alone."""


@dataclass(eq=False)
class Dense(Encoder):
    """A model that encodes a text as one vector; search is exact.

    Attributes:
        model: encodes the passages, and the queries unless ``query_model`` is given.
        pooling: sentence-transformers' name (``cls``, ``mean``), of a bare transformer or in place of a model's own.
        similarity: ``dot``, ``cosine``, ``euclidean`` or ``manhattan``; None for the checkpoint's own.
        truncate_dim: numbers of each vector that are kept, its first ones (Matryoshka); None for the checkpoint's own.
        title_separator: between the title and text of a passage in BEIR's format.
        store: of the vectors on disk: ``float32`` or ``float16``; None for as many bits as the arithmetic has.
        include_prompt: whether the pooling takes a prompt's tokens too; None for the checkpoint's own, but not those of
            an Instructor's instruction.
    """

    pooling: str | None = None
    similarity: str | None = None
    truncate_dim: int | None = None
    title_separator: str = " "
    store: str | None = None
    include_prompt: bool | None = None

    architecture = "dense"
    library_class = "SentenceTransformer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.similarity is not None and self.similarity not in SIMILARITIES:
            raise UserError(f"Unknown similarity {self.similarity!r}", do=f"Choose from: {', '.join(SIMILARITIES)}")
        store_of(self.store, self.encode_precision)  # refuses

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's vector."""
        decides = [self.digest, self.pooling, self.compared_by == "cosine", self.passage_prompt]
        numbers = [self.dtype, store_of(self.store, self.encode_precision), self.truncate_dim]
        return json.dumps(["dense", *decides, self.passage_length, *numbers])

    def encode_passages(self, texts: list[str]) -> shards.Arrays:
        """``vectors``: (n, d), in the order of the texts."""
        store = store_of(self.store, self.encode_precision)
        return {"vectors": self._encode(texts, "document").astype(store, copy=False)}

    def hits(
        self, queries: dense.Vectors, encodings: shards.Shards, index: Any, depth: int
    ) -> Iterator[list[tuple[str, float]]]:
        """The most similar passages."""
        return dense.exact(queries, encodings, depth, similarity=self.compared_by)

    @cached_property
    def declared(self) -> tuple[str | None, str]:
        """The similarity that is declared for the model, and where it comes from."""
        is_bare = self.pooling and checkpoint.kind(self.model, self.revision) in checkpoint.BARE
        if own := None if is_bare else getattr(self._model, "_similarity_fn_name", None):
            return own, ""
        known = None if self.pooling or self.loaded else checkpoints.registered_similarity(self.model)
        return (known, "mteb's registry") if known in SIMILARITIES else (None, "not declared")

    @cached_property
    def compared_by(self) -> str:
        """The similarity that was asked for, or that the model declares."""
        declared, _ = self.declared
        if declared and self.similarity not in (None, declared):
            warnings.warn(
                f"{self.model} declares {declared}, but the kit uses similarity={self.similarity}, as asked",
                stacklevel=2,
            )
        chosen = str(self.similarity or declared or getattr(self._model, "similarity_fn_name", "dot"))
        is_unit = any(type(module).__name__ == "Normalize" for module in self._model.modules())
        if (chosen, self.similarity, declared, is_unit) == ("cosine", None, None, False) and self.loaded is None:
            hint = "If it was trained for inner products, add --option similarity=dot"
            warnings.warn(f"{self.model} declares no similarity, so the kit takes cosine. {hint}", stacklevel=2)
        return chosen

    def _load(self, model: str) -> Any:
        encoder = self._of_library(self.library_class, model, pooling=self.pooling)
        if self.pooling is None:
            self._warn_of_prompts(model, encoder)
        is_instructor = "instructor" in Path(model).name.lower() and self.loaded is None
        if self.include_prompt is not None or is_instructor:
            encoder.set_pooling_include_prompt(bool(self.include_prompt))
        return self._prepare(encoder)

    def _prepare(self, model: Any) -> Any:
        if self.truncate_dim is not None:
            if self.truncate_dim > (width := model.get_embedding_dimension() or math.inf):
                raise UserError(f"truncate_dim is {self.truncate_dim}, but the model gives {width} numbers")
            model.truncate_dim = self.truncate_dim
        return super()._prepare(model)

    def _warn_of_prompts(self, name: str, model: Any) -> None:
        """Say so where a model has prompts, but under no name by which sentence-transformers would use them."""
        names_in_use = {"query", "document", "passage", "corpus", model.default_prompt_name}
        if not any(model.prompts.values()) and self.query_prompt is None and self.loaded is None:
            model.prompts |= (known := checkpoints.registered_prompts(name))
            if known:
                warnings.warn(f"The kit gives {name} the prompts of mteb's registry: {known}", stacklevel=2)
            elif _WITH_PREFIXES.search(name):
                hint = "--option query_prompt=TEXT and passage_prompt=TEXT"
                warnings.warn(
                    f"{name} declares no prompt, but such models need the prefixes of their card. Add {hint}",
                    stacklevel=2,
                )
        others = [prompt for prompt, text in model.prompts.items() if text and prompt not in names_in_use]
        if others and not any(model.prompts.get(prompt) for prompt in names_in_use) and self.query_prompt is None:
            names = ", ".join(others)
            warnings.warn(
                f"{name} has prompts ({names}), but none called query or document, so the kit uses none. Set them with "
                "--option query_prompt=TEXT and passage_prompt=TEXT",
                stacklevel=2,
            )

    def _encode_in(self, size: int, texts: Sequence[str], role: str) -> NDArray[np.float32]:
        """(n, d) float32."""
        import torch

        encode, how = self._how(role)
        how |= {"convert_to_tensor": True}
        order, parts = zip(*batches(encode, texts, size, self._pool, self._lengths(texts, role), **how), strict=True)
        vectors = torch.cat(parts).float().cpu().numpy()  # at the end, as each copy would wait for the GPU
        widened = np.asarray(vectors[np.argsort(np.concatenate(order))], np.float32)
        return dense.unit(widened) if self.compared_by == "cosine" else widened
