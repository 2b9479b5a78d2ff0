"""A model of your own, such as one behind an API: any object with an ``encode``.

    # mine.py
    class Mine:
        def encode(self, texts):  # a list of texts: one row of numbers for each
            return client.embeddings(texts)

    model = Mine()

``eval_kit run mine:model`` searches with it. Where queries and passages are encoded differently, the object has
``encode_query`` and ``encode_document`` beside it or instead, as in sentence-transformers. Passages are encoded
``AT_ONCE`` at a time; what is encoded is kept until the module's file changes.
"""

import hashlib
import importlib
import sys
from collections.abc import Callable, Sequence
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.search import dense, shards
from eval_kit.search.retriever import Hits, Passages

AT_ONCE = 1_024


class Own:
    """The object as a retriever: exact search by inner product."""

    def __init__(self, model: str) -> None:
        """Import ``module:object``, from the current folder too.

        Raises:
            UserError: there is no such module or object, importing it fails, or it cannot encode.
        """
        module, _, attribute = model.partition(":")
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            user_module = importlib.import_module(module)
            encoder = getattr(user_module, attribute)
        except Exception as error:  # the module is somebody's own code
            raise UserError(f"{model}: cannot be imported: {type(error).__name__}: {error}") from error
        if getattr(user_module, "__file__", None) is None:
            raise UserError(f"{model}: {module} is no file, so it cannot be told when the model changes")
        source = Path(str(user_module.__file__)).read_bytes()
        self.name, self.identity = model, f"own {attribute} {hashlib.sha256(source).hexdigest()}"
        self._queries, self._passages = (self._method(encoder, role) for role in ("encode_query", "encode_document"))

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks."""

        def encode(texts: Sequence[Any]) -> shards.Arrays:
            return {"vectors": self._vectors_of(self._passages, texts)}

        shards.write(passages, folder, encode, self.identity, size=AT_ONCE)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages of greatest inner product for each query."""
        batches = [self._vectors_of(self._queries, texts) for texts in batched(queries["text"].to_list(), AT_ONCE)]
        hits = dense.exact(np.concatenate(batches), shards.read(folder), depth)
        yield from zip(queries["query_id"].to_list(), hits, strict=True)

    def _method(self, model: Any, role: str) -> Callable[[Sequence[Any]], Any]:
        method = getattr(model, role, None) or getattr(model, "encode", None)
        if not callable(method):
            raise UserError(f"{self.name}: has no method encode, or {role}")
        return method  # type: ignore[no-any-return]

    def _vectors_of(self, encode: Callable[[Sequence[Any]], Any], texts: Sequence[Any]) -> dense.Vectors:
        method = getattr(encode, "__name__", "encode")
        try:
            vectors = np.asarray(encode(list(texts)), np.float32)
        except Exception as error:
            raise UserError(f"{self.name}: {method} failed: {type(error).__name__}: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
            raise UserError(f"{self.name}: {method} gave {vectors.shape}, not a row for each of {len(texts)} texts")
        if not np.isfinite(vectors).all():
            raise UserError(f"{self.name}: {method} gives NaN or infinity")
        return vectors
