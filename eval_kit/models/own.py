"""A model of your own, such as one behind an API: any object with an ``encode``.

    # mine.py
    class Mine:
        def encode(self, texts):  # a list of texts: one row of numbers for each
            return client.embeddings(texts)

    model = Mine()

``eval_kit run mine:model`` searches with it. Where queries and passages are encoded differently, the object has
``encode_query`` and ``encode_document`` beside it or instead, as in sentence-transformers; or the methods of BEIR,
LangChain, LlamaIndex or fastembed (``_METHODS``). It may be an encoder of MTEB, which is told that the task is MSMARCO,
give the dictionary of BGE-M3, or be a function of texts. Vectors are compared by inner product, or by what the object
declares as its ``similarity_fn_name``, or by its own ``similarity`` of queries' and passages' vectors; rows of uint8
are packed bits, compared by Hamming distance. A model of sentence-transformers itself is searched as one that is named
by its folder.

Passages are encoded ``AT_ONCE`` at a time. What is encoded is kept until the code beside the module, the weights that
torch has in it, or the vectors of a few fixed texts change.
"""

import hashlib
import importlib
import inspect
import sys
import time
import warnings
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
_METHODS = {
    "query": (
        *("encode_query", "encode_queries", "query_embed", "encode", "embed_query", "get_query_embedding"),
        *("embed", "__call__"),
    ),
    "document": (
        *("encode_document", "encode_corpus", "passage_embed", "encode", "embed_documents"),
        *("get_text_embedding_batch", "embed", "__call__"),
    ),
}
_OF_ONE = ("embed_query", "get_query_embedding")
"""Methods that take one text."""


class Own:
    """The object as a retriever: exact search by the similarity that it declares, else by inner product."""

    def __init__(self, model: str, loaded: Any, *, retries: int = 0, per_minute: int | None = None) -> None:
        """Take an object.

        Args:
            model: its name, ``module:object`` where it was imported.
            loaded: the object.
            retries: how often a call that fails is made again, after 1, 2, 4 … seconds: for a model behind an API.
            per_minute: the most calls in a minute; None for any number.

        Raises:
            UserError: it cannot encode, or declares a similarity that cannot be searched.
        """
        if retries < 0 or (per_minute is not None and per_minute < 1):
            raise UserError(f"retries must be at least 0 and per_minute at least 1 ({model})")
        self.name, self._retries = model, retries
        self._pause, self._next_call = 60 / per_minute if per_minute else 0.0, 0.0
        self._own = _own_similarity(loaded)
        declared = "dot" if self._own else getattr(loaded, "similarity_fn_name", None) or "dot"
        self._similarity = str(getattr(declared, "value", declared))
        if self._similarity not in dense.SIMILARITIES:
            raise UserError(
                f"{model} declares an unknown similarity, {declared!r}",
                do=f"Choose from: {', '.join(dense.SIMILARITIES)}",
            )
        self.identity = f"own {model} {_code_and_weights(model, loaded)} {self._similarity}"
        self._queries, self._passages = (self._method(loaded, role) for role in _METHODS)

    def __str__(self) -> str:
        """What it is, in a line."""
        named = (getattr(method, "__name__", "encode") for method in (self._queries, self._passages))
        similarity = "its own similarity" if self._own else self._similarity
        return f"an object of your own; {' and '.join(dict.fromkeys(named))}; {similarity}"

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks."""

        def encode(texts: Sequence[Any]) -> shards.Arrays:
            return {"vectors": self._vectors_of(self._passages, texts)}

        shards.write(passages, folder, encode, shards.with_probe(self.identity, folder, encode))

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The most similar passages for each query."""
        vectors = self._vectors_of(self._queries, queries["text"].to_list())
        hits = dense.exact(vectors, shards.read(folder), depth, similarity=self._measure(vectors))
        yield from zip(queries["query_id"].to_list(), hits, strict=True)

    def _measure(self, vectors: dense.Vectors) -> dense.Similarity:
        """The object's own similarity, if it takes vectors, else the one that it declares."""
        if self._own is None:
            return self._similarity
        import torch

        try:
            one = torch.from_numpy(vectors[:1])
            if np.shape(self._own(one, one)) == (1, 1):
                return self._own
            why = "gives no score for each pair of vectors"
        except Exception as error:  # the code is somebody's own
            why = f"takes no vectors ({type(error).__name__})"
        warnings.warn(f"The similarity of {self.name} {why}. The kit compares them by inner product", stacklevel=2)
        return self._similarity

    def _method(self, model: Any, role: str) -> Callable[[Sequence[Any]], Any]:
        named = (getattr(model, name, None) for name in _METHODS[role])
        method: Callable[..., Any] | None = next(filter(callable, named), None)
        if method is None or isinstance(model, type):
            raise UserError(f"{self.name} has no method encode, nor {_METHODS[role][0]}")
        name = getattr(method, "__name__", "encode")
        called = self._patient(_as_mteb(method, role) if _is_of_mteb(method) else method)

        def encode(texts: Sequence[Any]) -> Any:
            return [called(text) for text in texts] if name in _OF_ONE else called(texts)

        encode.__name__ = name
        return encode

    def _patient(self, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The method, called no more often than allowed, and again where it fails as a service does."""

        def call(texts: Any) -> Any:
            for attempt in range(self._retries + 1):
                time.sleep(max(0.0, self._next_call - time.monotonic()))
                self._next_call = time.monotonic() + self._pause
                try:
                    return _as_array(method(texts))
                except Exception as error:
                    if attempt == self._retries:
                        raise
                    warnings.warn(f"{self.name} failed ({type(error).__name__}). The kit calls it again", stacklevel=2)
                    time.sleep(2**attempt)
            return None

        return call

    def _vectors_of(self, encode: Callable[[Sequence[Any]], Any], texts: Sequence[Any]) -> dense.Vectors:
        vectors = np.concatenate([self._batch(encode, list(batch)) for batch in batched(texts, AT_ONCE)])
        return dense.unit(vectors) if self._similarity == "cosine" else vectors

    def _batch(self, encode: Callable[[Sequence[Any]], Any], texts: list[Any]) -> dense.Vectors:
        method = getattr(encode, "__name__", "encode")
        try:
            try:
                rows = _as_array(encode(texts))
            except (TypeError, AttributeError, KeyError):
                if method != "encode_corpus":
                    raise
                rows = _as_array(encode([{"title": "", "text": text} for text in texts]))  # as BEIR gives them
            vectors = dense.numbers(rows, self.name)
        except Exception as error:
            raise UserError(f"{method} of {self.name} failed: {str(error)[:200] or type(error).__name__}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
            raise UserError(
                f"{method} of {self.name} returned {vectors.shape}",
                f"It must return a row for each of {counted(len(texts), 'text')}",
            )
        if not np.isfinite(vectors).all():
            raise UserError(f"{method} of {self.name} gives NaN or infinity")
        return vectors


def _own_similarity(loaded: Any) -> Callable[[Any, Any], Any] | None:
    """The method ``similarity`` of an object; None for that of sentence-transformers, which its name tells."""
    owner = next((one for one in type(loaded).__mro__ if "similarity" in vars(one)), None)
    if owner is not None and owner.__module__.startswith("sentence_transformers."):
        return None
    method: Callable[[Any, Any], Any] | None = getattr(loaded, "similarity", None)
    return method if callable(method) else None


def import_object(model: str) -> Any:
    """The object of ``module:object``, from the current folder too.

    Raises:
        UserError: there is no such module or object, or importing it fails.
    """
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


def _is_of_mteb(method: Any) -> bool:
    """Whether a method wants what MTEB's encoders are given."""
    try:
        return "task_metadata" in inspect.signature(method).parameters
    except (TypeError, ValueError):  # it is no Python
        return False


def _as_mteb(method: Callable[..., Any], role: str) -> Callable[[Sequence[str]], Any]:
    """A method that is called as MTEB calls it, for the task MSMARCO."""
    import mteb
    from datasets import Dataset
    from mteb.types import PromptType
    from torch.utils.data import DataLoader

    about = {"task_metadata": mteb.get_task("MSMARCO").metadata, "hf_split": "dev", "hf_subset": "default"}

    def encode(texts: Sequence[str]) -> Any:
        rows: Any = Dataset.from_dict({"text": texts})
        return method(DataLoader(rows, batch_size=32), **about, prompt_type=PromptType(role))

    return encode


def _as_array(rows: Any) -> Any:
    """Rows of numbers, torch's tensors of any type, a generator of either, or BGE-M3's dictionary, as an array."""
    if isinstance(rows, dict) and "dense_vecs" in rows:
        return _as_array(rows["dense_vecs"])
    if isinstance(rows, Iterator):
        return _as_array(list(rows))
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
        if source and Path(source).suffix == ".py" and not name.startswith("eval_kit"):
            path = Path(source).resolve()  # some modules, such as torch.classes, name a file that is not there
            if not path.is_file():
                continue
            if is_own or (path.is_relative_to(folder) and "site-packages" not in path.parts):
                yield path
