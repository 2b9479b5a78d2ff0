"""Turn queries into vectors with an encoder: cached on disk, resumable, in constant memory."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from filelock import FileLock

from builder.encoders import Compute, Embeddings, Encoder, by_name, digest, public_name
from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.stats.vectors import Vectors, check_ids
from search.arrays import write_array

SHARD = 16_384
"""Texts in a shard: what an interrupted encoding may lose."""


def embed(queries: pl.DataFrame, encoder: str | Encoder, cache: Path | None = None) -> Vectors:
    """Encode a table of ``query_id`` and ``text``.

    Raises:
        UserError: an id occurs twice, or as :func:`encode`.
    """
    check_ids(queries["query_id"])
    chosen = by_name(encoder) if isinstance(encoder, str) else encoder
    return Vectors(public_name(chosen), queries["query_id"], encode(queries["text"], chosen, cache))


def encode(texts: Sequence[str] | pl.Series, encoder: str | Encoder, cache: Path | None = None) -> Embeddings:
    """The vectors of ``texts``, in their order.

    Texts are encoded longest first, shard by shard. With a ``cache`` folder each finished shard is written to disk
    before the next begins, so that an interrupted run resumes where it stopped, and memory does not grow with the
    number of texts; the result is a read-only memory map. The cache is keyed by the encoder's name and revision and the
    sha256 of the texts. Processes that need the same vectors wait for each other.

    Args:
        texts: n texts, none empty.
        encoder: a name (see :mod:`builder.encoders`), or an encoder.
        cache: where vectors are kept; created if need be. None keeps nothing.

    Returns:
        float32 of shape (n, d).

    Raises:
        UserError: there are no texts or an empty one, the encoder cannot be loaded or gives NaN, or the cache cannot
            be written.
    """
    checked = _checked(texts)
    chosen = by_name(encoder) if isinstance(encoder, str) else encoder
    job = _Job(checked, chosen)
    if cache is None:
        return job.in_memory()
    try:
        return job.on_disk(cache / job.key)
    except OSError as error:
        raise UserError(f"{cache}: cannot keep vectors there: {error.strerror or error}") from error


class _Job:
    """One list of texts for one encoder."""

    def __init__(self, texts: list[str], encoder: Encoder) -> None:
        self.texts = texts
        self.encoder = encoder
        self.order = np.argsort([-len(text) for text in texts], kind="stable")
        self._compute: Compute | None = None

    @cached_property
    def key(self) -> str:
        """The cache key: name, revision, texts."""
        parts = [self.encoder.name, self.encoder.revision, digest(self.texts)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def starts(self) -> range:
        return range(0, len(self.texts), SHARD)

    def in_memory(self) -> Embeddings:
        vectors: Embeddings | None = None
        with counting(f"encoding ({self.encoder.name})", "texts", len(self.texts)) as advance:
            for start in self.starts:
                shard = self.shard(start)
                vectors = np.empty((len(self.texts), shard.shape[1]), np.float32) if vectors is None else vectors
                vectors[self.order[start : start + SHARD]] = shard
                advance(len(shard))
        assert vectors is not None
        return vectors

    def on_disk(self, folder: Path) -> Embeddings:
        done = folder / "vectors.npy"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not done.exists():
                self._fill(folder / "shards")
                self._join(folder / "shards", done)
            shutil.rmtree(folder / "shards", ignore_errors=True)
        return np.load(done, mmap_mode="r")  # type: ignore[no-any-return]

    def shard(self, start: int) -> Embeddings:
        """The vectors of one shard, longest text first."""
        if self._compute is None:
            self._compute = self.encoder.load(self.texts)
        rows = self.order[start : start + SHARD]
        vectors = self._compute([self.texts[i] for i in rows])
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            text = self.texts[rows[int(finite.argmin())]]
            raise UserError(f"encoder {self.encoder.name!r} gives NaN or infinity for the text {text!r}")
        return vectors

    def _fill(self, shards: Path) -> None:
        shards.mkdir(exist_ok=True)
        with counting(f"encoding ({self.encoder.name})", "texts", len(self.texts)) as advance:
            for start in self.starts:
                path = shards / f"{start:09d}.npy"
                if not path.exists():
                    with atomic.whole(path) as part:
                        write_array(part, self.shard(start))
                advance(min(SHARD, len(self.texts) - start))

    def _join(self, shards: Path, done: Path) -> None:
        """Put the shards into the order of the texts."""
        with atomic.whole(done) as part:
            width = np.load(shards / f"{0:09d}.npy", mmap_mode="r").shape[1]
            out = np.lib.format.open_memmap(part, "w+", np.float32, (len(self.texts), width))
            for start in self.starts:
                out[self.order[start : start + SHARD]] = np.load(shards / f"{start:09d}.npy")
            out.flush()


def _checked(texts: Sequence[str] | pl.Series) -> list[str]:
    series = pl.Series("text", texts, pl.String)
    if not len(series):
        raise UserError("there are no texts to encode")
    empty = (series.str.strip_chars().str.len_bytes() == 0).fill_null(True)
    if empty.any():
        raise UserError(f"text {(empty.arg_max() or 0) + 1:,} is empty ({int(empty.sum()):,} in all)")
    return series.to_list()
