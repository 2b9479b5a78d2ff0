"""Turn queries into vectors with an encoder: cached on disk, resumable, in constant memory."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from filelock import FileLock

from builder.encoders import Compute, Embeddings, Encoder, by_name, digest, public_name
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.search import shards
from eval_kit.search.passages import Counted
from eval_kit.stats.vectors import Vectors, check_ids

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
    if cache is None:
        with tempfile.TemporaryDirectory() as temporary:
            return np.array(_on_disk(checked, chosen, Path(temporary)))
    parts = [chosen.name, chosen.revision, digest(checked)]
    folder = cache / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    with disk_errors(cache, "cannot keep vectors there"):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not (folder / "vectors.npy").exists():
                _on_disk(checked, chosen, folder)
            shutil.rmtree(folder / "shards", ignore_errors=True)
    return np.load(folder / "vectors.npy", mmap_mode="r")  # type: ignore[no-any-return]


def _on_disk(texts: list[str], encoder: Encoder, folder: Path) -> Embeddings:
    """Write ``vectors.npy`` in the order of the texts, from shards with the longest text first."""
    order = np.argsort([-len(text) for text in texts], kind="stable")
    compute: Compute | None = None

    def vectors(part: list[str]) -> shards.Arrays:
        nonlocal compute
        compute = compute or encoder.load(texts)
        encoded = compute(part)
        finite = np.isfinite(encoded).all(axis=1)
        if not finite.all():
            text = part[int(finite.argmin())]
            raise UserError(f"encoder {encoder.name!r} gives NaN or infinity for the text {text!r}")
        return {"vectors": encoded}

    by_length = Counted(lambda: ((str(row), texts[row]) for row in order.tolist()), len(texts))
    identity = json.dumps([encoder.name, encoder.revision])
    doing = f"encoding ({encoder.name})"
    stored = shards.write(by_length, folder / "shards", vectors, identity, doing, "texts", size=SHARD)
    with atomic.whole(folder / "vectors.npy") as part:
        width = stored.array("vectors").shape[1]
        out = np.lib.format.open_memmap(part, "w+", np.float32, (len(texts), width))
        for start, arrays in stored.blocks(SHARD):
            out[order[start : start + SHARD]] = arrays["vectors"]
        out.flush()
    return np.load(folder / "vectors.npy", mmap_mode="r")  # type: ignore[no-any-return]


def _checked(texts: Sequence[str] | pl.Series) -> list[str]:
    series = pl.Series("text", texts, pl.String)
    if not len(series):
        raise UserError("there are no texts to encode")
    empty = (series.str.strip_chars().str.len_bytes() == 0).fill_null(True)
    if empty.any():
        raise UserError(f"text {(empty.arg_max() or 0) + 1:,} is empty ({int(empty.sum()):,} in all)")
    return series.to_list()
