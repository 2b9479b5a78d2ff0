"""A model of your own, such as one behind an API: any object with an ``encode``.

    # mine.py
    class Mine:
        def encode(self, texts):  # a list of texts: one row of numbers for each
            return client.embeddings(texts)

    model = Mine()

``eval_kit run mine:model`` searches with it. Where queries and passages are encoded differently, the object has
``encode_query`` and ``encode_document`` instead, as in sentence-transformers; methods of other names are renamed in a
line: ``encode = staticmethod(store.embed_documents)``. Vectors are compared by inner product, or by what the object
declares as its ``similarity_fn_name``. A model of sentence-transformers itself is searched as one that is named by its
folder.

Passages are encoded ``AT_ONCE`` at a time. What is encoded is kept until the code beside the module, the weights that
torch has in it, or the vectors of a few fixed texts change.
"""

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import batched, chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eval_kit.errors import UserError, first_line
from eval_kit.search import dense, shards
from eval_kit.search.encoders import weights_digest
from eval_kit.search.retriever import Hits, Passages
from eval_kit.sentences import counted

AT_ONCE = 1_024
_ROLES = ("query", "document")


class Own:
    """The object as a retriever: exact search by the similarity that it declares, else by inner product."""

    def __init__(self, model: str, loaded: Any) -> None:
        """Take an object; ``model`` is its name, ``module:object`` where it was imported."""
        self.name = model
        declared = getattr(loaded, "similarity_fn_name", None) or "dot"
        self._similarity = str(getattr(declared, "value", declared))
        if self._similarity not in dense.SIMILARITIES:
            raise UserError(
                f"{model} declares an unknown similarity, {declared!r}",
                do=f"Choose from: {', '.join(dense.SIMILARITIES)}",
            )
        self.identity = f"own {model} {_code_and_weights(model, loaded)} {self._similarity}"
        methods = ([getattr(loaded, name, None) for name in (f"encode_{role}", "encode")] for role in _ROLES)
        self._queries, self._passages = (next(filter(callable, found), None) for found in methods)
        if self._queries is None or self._passages is None or isinstance(loaded, type):
            raise UserError(f"{model} has no method encode, nor encode_query and encode_document")

    def __str__(self) -> str:
        """What it is, in a line."""
        return f"an object of your own; {self._similarity}"

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks."""

        def encode(texts: Sequence[Any]) -> shards.Arrays:
            return {"vectors": self._vectors_of(self._passages, texts)}

        shards.write(passages, folder, encode, shards.with_probe(self.identity, folder, encode))

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The most similar passages for each query."""
        vectors = self._vectors_of(self._queries, queries["text"].to_list())
        hits = dense.exact(vectors, shards.read(folder), depth, similarity=self._similarity)
        yield from zip(queries["query_id"].to_list(), hits, strict=True)

    def _vectors_of(self, encode: Callable[[Sequence[Any]], Any] | None, texts: Sequence[Any]) -> dense.Vectors:
        assert encode is not None
        vectors = np.concatenate([self._batch(encode, list(batch)) for batch in batched(texts, AT_ONCE)])
        return dense.unit(vectors) if self._similarity == "cosine" else vectors

    def _batch(self, encode: Callable[[Sequence[Any]], Any], texts: list[Any]) -> dense.Vectors:
        method = getattr(encode, "__name__", "encode")
        try:
            vectors = dense.numbers(_as_array(encode(texts)), self.name)
        except Exception as error:  # the code is somebody's own
            raise UserError(f"{method} of {self.name} failed: {str(error)[:200] or type(error).__name__}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
            raise UserError(
                f"{method} of {self.name} returned {vectors.shape}",
                f"It must return a row for each of {counted(len(texts), 'text')}",
            )
        if not np.isfinite(vectors).all():
            raise UserError(f"{method} of {self.name} gives NaN or infinity")
        return vectors


def import_object(model: str) -> Any:
    """The object of ``module:object``, from the current folder too."""
    module, _, attribute = model.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        user_module = importlib.import_module(module)
        loaded = getattr(user_module, attribute)
    except Exception as error:  # the module is somebody's own code
        raise UserError(f"Could not import {model}: {first_line(error)}") from error
    if getattr(user_module, "__file__", None) is None:
        raise UserError(f"{module} of {model} is not a file, so the kit cannot see when the model changes")
    return loaded


def _as_array(rows: Any) -> Any:
    """Rows of numbers, or torch's tensors of any type, as an array."""
    if hasattr(rows, "detach"):
        return (rows.detach().float() if rows.is_floating_point() else rows.detach()).cpu().numpy()
    if isinstance(rows, list | tuple) and rows and hasattr(rows[0], "detach"):
        return np.stack([_as_array(row) for row in rows])
    return np.asarray(rows)


def _code_and_weights(model: str, loaded: Any) -> str:
    """The sha256 of the modules that lie beside an object's own or below it, and of the weights that they hold."""
    from torch.nn import Module

    sha256 = hashlib.sha256()
    own = sys.modules.get(model.partition(":")[0] if ":" in model else loaded.__module__)
    for file in sorted(set(_files_beside(own))):
        sha256.update(file.read_bytes())
    held = chain([loaded], getattr(loaded, "__dict__", {}).values(), vars(own).values() if own else ())
    for module in {id(one): one for one in held if isinstance(one, Module)}.values():
        sha256.update(weights_digest(module).encode())
    return sha256.hexdigest()


def _files_beside(own: Any) -> Iterator[Path]:
    """The files of modules that are imported from the folder of an object's module, or that of its package."""
    if getattr(own, "__file__", None) is None:
        return
    file = Path(own.__file__).resolve()
    package = own.__name__.partition(".")[0]
    folder = file.parents[own.__name__.count(".") + (file.stem == "__init__")]
    for name, module in list(sys.modules.items()):
        source = getattr(module, "__file__", None)
        is_own = name.partition(".")[0] == package
        if not source or Path(source).suffix != ".py" or name.startswith("eval_kit"):
            continue
        if is_own or "site-packages" not in source:  # looking up the thousands that PyTorch imports takes a second
            path = Path(source).resolve()
            if path.is_file() and (is_own or path.is_relative_to(folder)):  # torch.classes names one that is not there
                yield path
