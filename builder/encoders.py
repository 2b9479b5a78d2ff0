"""Encoders, which turn texts into vectors, by name; the vectors are kept on disk, in constant memory.

``lsa`` is TF-IDF and a truncated SVD: no weights, one seed. Any other name is a sentence-transformers model, as
:func:`eval_kit.files.checkpoint.name_and_pooling` takes it; ECIR 2023's is ``distilbert-base-uncased:cls``.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.languages import function_words
from eval_kit.search import shards
from eval_kit.search.passages import CountedPassages

type Embeddings = NDArray[np.float32]
"""(texts, dimensions), finite."""
type Compute = Callable[[Sequence[str]], Embeddings]

MOST_FREQUENT = 0.2
"""Largest share of passages that a word may be in: the more frequent ones are function words, and no topics."""
MOST_FREQUENT_IN_QUERIES, FEW_QUERIES = 0.02, 50
"""Largest share of queries that a word may be in where there are no passages, but always so many queries."""
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

    It learns from the ``corpus`` (passages, say), else from the texts to encode, without words that are in more than
    the share ``most`` of them, and without the words ``without``.
    """

    dimensions: int = 128
    most: float = 1.0
    seed: int = 13
    corpus: Sequence[str] | None = field(default=None, repr=False)
    without: frozenset[str] = field(default=frozenset(), repr=False)

    name = "lsa"

    @property
    def revision(self) -> str:
        """The parameters, scikit-learn's version and the digests of the corpus and of the words to drop."""
        import sklearn

        learnt = "own" if self.corpus is None else digest(self.corpus)
        dropped = f"-{digest(sorted(self.without))[:16]}" if self.without else ""
        return f"{self.dimensions}-{self.most}-{self.seed}-{sklearn.__version__}-{learnt}{dropped}"

    def load(self, texts: Sequence[str]) -> Compute:
        """Learn the words and dimensions; on one thread, so that the vectors don't depend on the number of threads."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize
        from threadpoolctl import threadpool_limits

        from eval_kit.words import words as all_words

        def tokenize(text: str) -> list[str]:
            return [word for word in all_words(text) if word not in self.without]

        words = TfidfVectorizer(
            sublinear_tf=True, max_df=self.most, lowercase=False, token_pattern=None, tokenizer=tokenize
        )
        try:
            weights = words.fit_transform(texts if self.corpus is None else self.corpus)
        except ValueError as error:
            raise UserError(
                "lsa cannot learn from these texts", "Hardly any word is in two of them, or in few enough"
            ) from error
        dimensions = min(self.dimensions, weights.shape[1] - 1)
        if dimensions < 1:
            raise UserError("lsa cannot learn from these texts", "They contain a single word")
        with threadpool_limits(1):
            svd = TruncatedSVD(dimensions, random_state=self.seed).fit(weights)

        def compute(part: Sequence[str]) -> Embeddings:
            with threadpool_limits(1):
                return np.asarray(normalize(svd.transform(words.transform(part))), np.float32)

        return compute


def of_queries(count: int) -> Lsa:
    """LSA where there are no passages: queries of one wording would be a topic, so function words are no features."""
    return Lsa(most=min(1.0, max(MOST_FREQUENT_IN_QUERIES, FEW_QUERIES / count)), without=function_words())


@dataclass(frozen=True)
class Model:
    """A frozen sentence-transformers model, or with ``:cls`` the first token's last hidden state of a transformer."""

    name: str

    @property
    def source(self) -> str:
        """Hub id or folder."""
        return checkpoint.name_and_pooling(self.name)[0]

    @cached_property
    def revision(self) -> str:
        """The commit on the Hub, else of the cached copy; or the digest of a folder's files."""
        return checkpoint.digest(self.source)

    def load(self, texts: Sequence[str]) -> Compute:
        """Load the weights; vectors are not scaled, and have no prompt."""
        source, pooling = checkpoint.name_and_pooling(self.name)
        revision = None if Path(source).is_dir() else self.revision  # refuses before the slow imports
        from eval_kit.models.dense import Dense

        unscaled: dict[str, Any] = {"similarity": "dot", "query_prompt": "", "encode_precision": "float32"}
        model = Dense(source, revision=revision, pooling=pooling, **unscaled)
        return lambda part: np.asarray(model.encode_queries(list(part)), np.float32)


def digest(texts: Iterable[str]) -> str:
    """sha256 of a list of texts."""
    sha256 = hashlib.sha256()
    for text in texts:
        data = text.encode()
        sha256.update(len(data).to_bytes(8, "little") + data)
    return sha256.hexdigest()


def encode(texts: Sequence[str] | pl.Series, encoder: Encoder, cache: Path | None = None) -> Embeddings:
    """The vectors of ``texts``, in their order.

    They are encoded into :mod:`eval_kit.search.shards`, so that memory does not grow with the number of texts. With a
    ``cache`` folder, an interrupted run resumes where it stopped, and the result is a read-only memory map; its key is
    the encoder's name and revision and the sha256 of the texts. Processes that need the same vectors wait in turn.
    Returns float32 of shape (n, d).
    """
    strings = _check(texts)
    if cache is None:
        with tempfile.TemporaryDirectory() as temporary:
            return np.array(_on_disk(strings, encoder, Path(temporary)))
    parts = [encoder.name, encoder.revision, digest(strings)]
    return _on_disk(strings, encoder, cache / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32])


def _on_disk(texts: list[str], encoder: Encoder, folder: Path) -> Embeddings:
    compute = cache(lambda: encoder.load(texts))  # where all are on the disk, nothing is loaded
    numbered = CountedPassages(lambda: ((str(row), text) for row, text in enumerate(texts)), len(texts))
    identity, doing = json.dumps([encoder.name, encoder.revision]), f"encoding ({encoder.name})"
    kept = shards.write(
        numbered, folder, lambda part: {"vectors": compute()(part)}, identity, doing, "texts", size=SHARD
    )
    return kept.array("vectors")


def _check(texts: Sequence[str] | pl.Series) -> list[str]:
    series = pl.Series("text", texts, pl.String)
    if not len(series):
        raise UserError("There are no texts to encode")
    empty = (series.str.strip_chars().str.len_bytes() == 0).fill_null(True)
    if empty.any():
        raise UserError(f"Text {(empty.arg_max() or 0) + 1:,} is empty ({int(empty.sum()):,} in all)")
    return series.to_list()
