"""Passages encoded once per model: written in shards, each on the disk before the next begins, and read back.

A folder of shards holds ``00000/``, ``00001/`` … and, once all are there, ``shards.json``. A shard is a folder of
``ids.npy`` (the passage ids as UTF-8 bytes), the arrays that the model made of its passages (one ``.npy`` each) and
``shard.json`` with its key: the sha256 of what encoded them and of the ids and texts in their order. A shard whose key
is the one expected is never encoded again, so a killed run goes on where it stopped, and any number of processes may
write different shards of one folder.
"""

import hashlib
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.files import atomic
from search.arrays import write_array
from search.retriever import Passages
from search.topk import rank_of

MADE_OF_SHARDS = ("plaid", "lucene", "faiss.index")
"""Indexes that stand beside the vectors that they were made of, and are searched in their stead."""

SHARD = 8_192
"""Passages in a shard: what a killed encoding may lose, and what is in memory at once."""
MANIFEST = "shards.json"

type Arrays = Mapping[str, NDArray[Any]]
type Encode = Callable[[list[str]], Arrays]
"""Texts to arrays: what one shard holds of its passages."""


def write(passages: Passages, folder: Path, encode: Encode, identity: str) -> "Shards":
    """Encode passages into ``folder``, as far as they are not there yet. A second process waits for the first.

    Args:
        passages: read once; nothing of them is kept but the shard in hand.
        folder: created if need be; shards of other passages or another model are replaced.
        encode: called with at most ``SHARD`` texts at a time.
        identity: of everything that decides what ``encode`` makes of a text: weights, lengths, prompts.

    Raises:
        UserError: no passages, a model that gives NaN, a full disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        total = len(passages) if isinstance(passages, Sized) else None
        with FileLock(folder / ".lock"), counting("encoding passages", "passages", total) as advance:
            count = 0
            for count, batch in enumerate(itertools.batched(passages, SHARD), start=1):
                encoded = write_shard(folder, count - 1, batch, encode, identity)
                advance(len(batch), not encoded)
            return finish(folder, count)
    except OSError as error:
        raise UserError(f"{folder}: the encoded passages cannot be kept: {error.strerror or error}") from error


def write_shard(folder: Path, number: int, batch: Sequence[tuple[str, str]], encode: Encode, identity: str) -> bool:
    """Encode one shard, unless it is there.

    Args:
        folder: of the shards.
        number: of this one, from 0.
        batch: its passages: ``SHARD`` of them, the last shard fewer.
        encode: see :func:`write`.
        identity: see :func:`write`.

    Returns:
        Whether it had to be encoded.
    """
    key = _key(identity, batch)
    path = folder / f"{number:05d}"
    if _read(path / "shard.json").get("key") == key:
        return False
    (folder / MANIFEST).unlink(missing_ok=True)
    begun = time.monotonic()
    arrays = encode([text for _, text in batch])
    seconds = time.monotonic() - begun
    _refuse_nan(arrays, batch)
    about = {"key": key, "passages": len(batch), "seconds": seconds, "arrays": sorted(arrays)}
    ids = np.array([passage_id.encode() for passage_id, _ in batch])
    with atomic.folder(path) as staging:
        for name, array in {"ids": ids, **arrays}.items():
            write_array(staging / f"{name}.npy", array)
        (staging / "shard.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    return True


def finish(folder: Path, count: int) -> "Shards":
    """Say that the first ``count`` shards are all there are, and remove others.

    Raises:
        UserError: there are none, or one is missing.
    """
    if count == 0:
        raise UserError("there are no passages to encode")
    about = [_read(folder / f"{number:05d}" / "shard.json") for number in range(count)]
    if not all(about):
        raise UserError(f"{folder}: shard {about.index({}):05d} of the encoded passages is missing")
    for stale in folder.glob("[0-9]" * 5):
        if int(stale.name) >= count:
            shutil.rmtree(stale)
    for unfinished in folder.glob("." + "[0-9]" * 5 + ".*"):
        shutil.rmtree(unfinished)
    key = hashlib.sha256("".join(shard["key"] for shard in about).encode()).hexdigest()
    manifest = {
        "key": key,
        "passages": [shard["passages"] for shard in about],
        "seconds": sum(shard["seconds"] for shard in about),
        "arrays": about[0]["arrays"],
    }
    if _read(folder / MANIFEST) != manifest:
        atomic.write_text(folder / MANIFEST, json.dumps(manifest) + "\n")
    return read(folder)


def read(folder: Path) -> "Shards":
    """Open complete shards.

    Raises:
        UserError: there are none, or they are not complete.
    """
    manifest = _read(folder / MANIFEST)
    if not manifest:
        raise UserError(f"{folder}: holds no index, or one that is not finished; index the passages first")
    return Shards(folder, manifest["key"], tuple(manifest["passages"]), manifest["seconds"], tuple(manifest["arrays"]))


@dataclass(frozen=True)
class Shards:
    """Encoded passages on the disk.

    Attributes:
        folder: where they are.
        key: sha256 of everything that decides their content.
        counts: passages of each shard.
        seconds: that the encoding took, over all attempts.
        arrays: names of the arrays of a shard.
    """

    folder: Path
    key: str
    counts: tuple[int, ...]
    seconds: float
    arrays: tuple[str, ...]

    def __len__(self) -> int:
        """Passages in all."""
        return sum(self.counts)

    def __iter__(self) -> Iterator[tuple[int, Arrays]]:
        """For each shard the row of its first passage, and its arrays as read-only memory maps."""
        start = 0
        for arrays, count in zip(self._maps, self.counts, strict=True):
            yield start, arrays
            start += count

    @cached_property
    def _maps(self) -> list[Arrays]:
        """Kept, as a new map is read page by page again."""
        return [
            {name: np.load(self.folder / f"{number:05d}" / f"{name}.npy", mmap_mode="r") for name in self.arrays}
            for number in range(len(self.counts))
        ]

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """The position of each row's passage id among all ids in ascending order."""
        return rank_of(self.ids)

    @cached_property
    def ids(self) -> NDArray[np.bytes_]:
        """The passage ids, UTF-8, in the order of the rows."""
        return np.concatenate([np.load(self.folder / f"{n:05d}" / "ids.npy") for n in range(len(self.counts))])


@contextmanager
def building(folder: Path, name: str, state: Any) -> Iterator[bool]:
    """Make an index of shards once, though two processes want it.

    Args:
        folder: of the shards and the index.
        name: of the index; ``<name>.json`` says what it was made of, once it is complete.
        state: of everything that decides the index.

    Yields:
        Whether it has to be made.

    Raises:
        UserError: the disk is full.
    """
    done = folder / f"{name}.json"
    try:
        with FileLock(folder / ".build.lock"):
            if is_built(folder, name, state):
                yield False
                return
            done.unlink(missing_ok=True)
            yield True
            atomic.write_text(done, json.dumps(state) + "\n")
    except OSError as error:
        raise UserError(f"{folder}: the index cannot be kept: {error.strerror or error}") from error


def is_built(folder: Path, name: str, state: Any) -> bool:
    """Whether the index of that name is complete, and is of these shards."""
    return bool(_read(folder / f"{name}.json") == state)


def _key(identity: str, batch: Sequence[tuple[str, str]]) -> str:
    digest = hashlib.sha256(identity.encode())
    for passage in batch:
        for part in passage:
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _refuse_nan(arrays: Arrays, batch: Sequence[tuple[str, str]]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            first, last = batch[0][0], batch[-1][0]
            raise UserError(f"the model gives NaN or infinity ({name}) for a passage between {first} and {last}")


def index_bytes(folder: Path) -> int:
    """Bytes of all files that a search of an index reads."""
    derived = [folder / name for name in MADE_OF_SHARDS if (folder / name).exists()]
    return sum(
        file.stat().st_size for path in derived or [folder] for file in [path, *path.rglob("*")] if file.is_file()
    )
