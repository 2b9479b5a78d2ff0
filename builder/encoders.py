"""Encoders, which turn texts into vectors, by name; the vectors are kept on disk, in constant memory.

``lsa`` is TF-IDF and a truncated SVD: no weights, one seed. Any other name is a sentence-transformers model (Hub id or
folder); followed by ``:cls``, the bare transformer's [CLS] of the last hidden state, as ECIR 2023 §3.1 takes it
from DistilBERT (``distilbert-base-uncased:cls``).
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from filelock import FileLock
from numpy.typing import NDArray

from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic, checkpoint
from eval_kit.search import shards
from eval_kit.search.encoders import Batch, with_pooling
from eval_kit.search.passages import CountedPassages
from eval_kit.stats.vectors import Vectors, check_ids

type Embeddings = NDArray[np.float32]
"""(texts, dimensions), finite."""
type Compute = Callable[[Sequence[str]], Embeddings]

MOST_FREQUENT = 0.2
"""Largest share of passages that a word may be in: the more frequent ones are function words, and no topics."""
SHARD = 16_384
"""Texts in a shard: what an interrupted encoding may lose."""


class Encoder(Protocol):
    """Anything that turns texts into vectors."""

    @property
    def name(self) -> str:
        """Its name, in manifests and cache keys."""

    @property
    def revision(self) -> str:
        """Identifies what else its vectors depend on: weights, parameters."""

    def load(self, texts: Sequence[str]) -> Compute:
        """Prepare to encode ``texts``, or any part of them: a function from texts to (n, d) float32."""


def by_name(name: str) -> Encoder:
    """The encoder called ``name``: ``lsa``, a sentence-transformers model, or a transformer with ``:cls``."""
    return Lsa() if name == "lsa" else Model(name)


def public_name(encoder: Encoder) -> str:
    """An encoder's name fit for publication: for a model in a folder, without the path to it."""
    if isinstance(encoder, Model) and Path(encoder.source).is_dir():
        return Path(encoder.source).resolve().name + encoder.name.removeprefix(encoder.source)
    return encoder.name


@dataclass(frozen=True)
class Lsa:
    """TF-IDF (sublinear) and truncated SVD, with rows of unit length; zero for a text without a known word.

    Attributes:
        dimensions: of the vectors, at most the number of distinct words less one.
        most: drop words that are in more than this share of the texts (1.0 drops none).
        seed: of the randomised SVD.
        corpus: texts to learn from (passages, say); None learns from the texts to encode.
    """

    dimensions: int = 128
    most: float = 1.0
    seed: int = 13
    corpus: Sequence[str] | None = field(default=None, repr=False)

    name = "lsa"

    @property
    def revision(self) -> str:
        """The parameters, scikit-learn's version and the digest of the corpus."""
        import sklearn

        learnt = "own" if self.corpus is None else digest(self.corpus)
        return f"{self.dimensions}-{self.most}-{self.seed}-{sklearn.__version__}-{learnt}"

    def load(self, texts: Sequence[str]) -> Compute:
        """Learn the words and dimensions; on one thread, so that the vectors don't depend on the number of threads."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize
        from threadpoolctl import threadpool_limits

        from eval_kit.words import words as tokenize

        words = TfidfVectorizer(
            sublinear_tf=True, max_df=self.most, lowercase=False, token_pattern=None, tokenizer=tokenize
        )
        try:
            weights = words.fit_transform(texts if self.corpus is None else self.corpus)
        except ValueError as error:
            raise UserError(
                "lsa cannot learn from these texts: hardly a word is in two of them, or in few enough"
            ) from error
        dimensions = min(self.dimensions, weights.shape[1] - 1)
        if dimensions < 1:
            raise UserError("lsa cannot learn from these texts: they hold a single word")
        with threadpool_limits(1):
            svd = TruncatedSVD(dimensions, random_state=self.seed).fit(weights)

        def compute(part: Sequence[str]) -> Embeddings:
            with threadpool_limits(1):
                return np.asarray(normalize(svd.transform(words.transform(part))), np.float32)

        return compute


@dataclass(frozen=True)
class Model:
    """A frozen sentence-transformers model, or with ``:cls`` the first token's last hidden state of a transformer.

    Attributes:
        name: Hub id or folder, with or without ``:cls``.
        budget: tokens in a batch, padding included; None for 2,048 on a CPU and 65,536 elsewhere.
    """

    name: str
    budget: int | None = None

    @property
    def source(self) -> str:
        """Hub id or folder."""
        return self.name.removesuffix(":cls")

    @cached_property
    def revision(self) -> str:
        """The commit on the Hub, else of the cached copy; or the digest of a folder's files."""
        with self._faults():
            return checkpoint.digest(self.source)

    def load(self, texts: Sequence[str]) -> Compute:
        """Load the weights; the returned function batches by tokens."""
        model = self.model()
        batch = Batch(self.budget, on_cpu=2_048, on_gpu=65_536, unit="tokens")

        def compute(part: Sequence[str]) -> Embeddings:
            lengths = _token_counts(model, part)
            order = np.argsort(-lengths, kind="stable")

            def encode_in(budget: int) -> Embeddings:
                vectors = []
                for rows in _batches(lengths[order], budget):
                    texts = [part[i] for i in order[rows]]
                    vectors.append(model.encode(texts, batch_size=len(texts), show_progress_bar=False))
                return np.concatenate(vectors, dtype=np.float32)[np.argsort(order)]

            return batch.of(model.device, encode_in)

        return compute

    def model(self) -> Any:
        """The ``SentenceTransformer``, ready to encode."""
        revision = None if Path(self.source).is_dir() else self.revision  # refuses before the slow imports
        with self._faults():
            if self.name.endswith(":cls"):
                return with_pooling(self.source, "cls", revision)
            return checkpoint.open_model(self.source, "SentenceTransformer", revision)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            why = str(error).removeprefix(f"{self.source}: ").removeprefix("cannot be loaded: ")
            raise UserError(f"encoder {self.name!r} cannot be loaded: {why}; lsa needs no model") from error


def _token_counts(model: Any, texts: Sequence[str]) -> NDArray[np.int64]:
    """How many tokens the model will see of each text; characters if it has no fitting tokenizer."""
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        return np.array(list(map(len, texts)))
    tokens = tokenizer(list(texts), truncation=True, max_length=model.max_seq_length, return_attention_mask=False)
    return np.array(list(map(len, tokens["input_ids"])))


def _batches(lengths: NDArray[np.int64], budget: int) -> Iterator[slice]:
    """Cut lengths (descending) so that in each part number x greatest length is within the budget, or number is 1."""
    start = 0
    while start < len(lengths):
        stop = min(len(lengths), start + max(1, budget // max(1, int(lengths[start]))))
        yield slice(start, stop)
        start = stop


def digest(texts: Iterable[str]) -> str:
    """sha256 of a list of texts."""
    sha256 = hashlib.sha256()
    for text in texts:
        data = text.encode()
        sha256.update(len(data).to_bytes(8, "little") + data)
    return sha256.hexdigest()


def embed(queries: pl.DataFrame, encoder: Encoder, cache: Path | None = None) -> Vectors:
    """Encode a table of ``query_id`` and ``text``.

    Raises:
        UserError: an id occurs twice, or as :func:`encode`.
    """
    check_ids(queries["query_id"])
    return Vectors(public_name(encoder), queries["query_id"], encode(queries["text"], encoder, cache))


def encode(texts: Sequence[str] | pl.Series, encoder: Encoder, cache: Path | None = None) -> Embeddings:
    """The vectors of ``texts``, in their order.

    Texts are encoded longest first, shard by shard. With a ``cache`` folder each finished shard is written to disk
    before the next begins, so that an interrupted run resumes where it stopped, and memory does not grow with the
    number of texts; the result is a read-only memory map. The cache is keyed by the encoder's name and revision and the
    sha256 of the texts. Processes that need the same vectors wait for each other.

    Args:
        texts: n texts, none empty.
        encoder: from :func:`by_name`, or another one.
        cache: where vectors are kept; created if need be. None keeps nothing.

    Returns:
        float32 of shape (n, d).

    Raises:
        UserError: there are no texts or an empty one, the encoder cannot be loaded or gives NaN, or the cache cannot
            be written.
    """
    strings = _check(texts)
    if cache is None:
        with tempfile.TemporaryDirectory() as temporary:
            return np.array(_on_disk(strings, encoder, Path(temporary)))
    parts = [encoder.name, encoder.revision, digest(strings)]
    folder = cache / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    with disk_errors(cache, "cannot keep vectors there"):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not (folder / "vectors.npy").exists():
                _on_disk(strings, encoder, folder)
            shutil.rmtree(folder / "shards", ignore_errors=True)
    return np.load(folder / "vectors.npy", mmap_mode="r")  # type: ignore[no-any-return]


def _on_disk(texts: list[str], encoder: Encoder, folder: Path) -> Embeddings:
    """Write ``vectors.npy`` in the order of the texts, from shards with the longest text first."""
    # batches are of like lengths then, and too little memory shows at once
    order = np.argsort([-len(text) for text in texts], kind="stable")
    compute: Compute | None = None

    def vectors(part: list[str]) -> shards.Arrays:
        nonlocal compute
        compute = compute or encoder.load(texts)
        vectors = compute(part)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            text = part[int(finite.argmin())]
            raise UserError(f"encoder {encoder.name!r} gives NaN or infinity for the text {text!r}")
        return {"vectors": vectors}

    by_length = CountedPassages(lambda: ((str(row), texts[row]) for row in order.tolist()), len(texts))
    identity = json.dumps([encoder.name, encoder.revision])
    doing = f"encoding ({encoder.name})"
    index = shards.write(by_length, folder / "shards", vectors, identity, doing, "texts", size=SHARD)
    with atomic.whole(folder / "vectors.npy") as part:
        width = index.array("vectors").shape[1]
        out = np.lib.format.open_memmap(part, "w+", np.float32, (len(texts), width))
        for start, arrays in index.blocks(SHARD):
            out[order[start : start + SHARD]] = arrays["vectors"]
        out.flush()
    return np.load(folder / "vectors.npy", mmap_mode="r")  # type: ignore[no-any-return]


def _check(texts: Sequence[str] | pl.Series) -> list[str]:
    series = pl.Series("text", texts, pl.String)
    if not len(series):
        raise UserError("there are no texts to encode")
    empty = (series.str.strip_chars().str.len_bytes() == 0).fill_null(True)
    if empty.any():
        raise UserError(f"text {(empty.arg_max() or 0) + 1:,} is empty ({int(empty.sum()):,} in all)")
    return series.to_list()
