"""Passages encoded once per model: shard by shard, each on the disk before the next begins, then one file per array.

While passages are encoded a folder holds ``00000/``, ``00001/`` … A shard is a folder of ``ids.npy`` (the passage ids
as UTF-8 bytes), the arrays that the model made of its passages (one ``.npy`` each) and ``shard.json`` with its key: the
sha256 of what encoded them and of the ids and texts in their order. A shard whose key is the expected one is never
encoded again, so a killed run resumes where it stopped, and any number of processes may write different shards of one
folder.

Once all are there they are joined: each array becomes one file, a shard is removed when its rows are on the disk, and
``shards.json`` names the keys. An array has one row per passage, unless the shards hold ``lengths`` (rows of each
passage): then passage ``i`` has the rows ``offsets[i]`` to ``offsets[i + 1]``, and ``offsets.npy`` stands for
``lengths``.
"""

import hashlib
import itertools
import json
import logging
import operator
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
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
from search.arrays import create_array, put_rows, write_array
from search.processes import in_order
from search.topk import rank_of

LOG = logging.getLogger(__name__)
MADE_OF_SHARDS = ("plaid", "lucene", "faiss.index")
"""Indexes that lie beside the vectors that they were made from, and are searched in their stead."""

SHARD = 8_192
"""Passages in a shard: how many a killed encoding may lose, and how many are in memory at once."""
MANIFEST = "shards.json"
JOINING = "joining.json"
"""The future ``shards.json``, while shards are being joined."""

type Arrays = Mapping[str, NDArray[Any]]
type Content = str | NDArray[np.unsignedinteger[Any]]
"""The text of a passage, or the ids of its tokens."""
type Encode = Callable[[list[Any]], Arrays]
"""Contents to arrays: what one shard holds of its passages."""


def write(
    passages: Iterable[tuple[str, Content]],
    folder: Path,
    encode: Encode,
    identity: str,
    doing: str = "encoding passages",
    index_share: float = 0.0,
    executor: Executor | None = None,
) -> "Shards":
    """Encode into ``folder`` the passages that are not there yet. A second process waits for the first.

    Args:
        passages: read once; only the shards in hand are kept in memory.
        folder: created if need be; shards of other passages or another model are replaced.
        encode: called with at most ``SHARD`` texts at a time.
        identity: of everything that decides what ``encode`` makes of a text: weights, lengths, prompts.
        doing: for the progress line.
        index_share: bytes that an index of the arrays will need for each byte of theirs.
        executor: of the processes that call ``encode``; None for this one.

    Raises:
        UserError: no passages, a model that gives NaN, a disk that is full, or that the first shard shows to be too
            small.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        total = operator.length_hint(passages) or None
        with FileLock(folder / ".lock"), counting(doing, "passages", total) as advance:
            count = 0
            calls = (
                (folder, number, batch, encode, identity)
                for number, batch in enumerate(itertools.batched(passages, SHARD))
            )
            for count, (size, encoded) in enumerate(in_order(executor, _written, calls), start=1):
                if encoded and count == 1 and total:
                    _check_space(folder, size, total, index_share)
                advance(size, not encoded)
            return finish(folder, count)
    except OSError as error:
        raise UserError(f"{folder}: the encoded passages cannot be kept: {error.strerror or error}") from error


def write_shard(folder: Path, number: int, batch: Sequence[tuple[str, Content]], encode: Encode, identity: str) -> bool:
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
    if joined := _joined(folder):
        if number < len(joined["shards"]) and joined["shards"][number]["key"] == key:
            return False
        _split(folder)
    begun = time.monotonic()
    arrays = encode([text for _, text in batch])
    seconds = time.monotonic() - begun
    _refuse_nan(arrays, batch)
    ids = np.array([passage_id.encode() for passage_id, _ in batch])
    _write_folder(path, {"ids": ids, **arrays}, {"key": key, "passages": len(batch), "seconds": seconds})
    return True


def _written(
    folder: Path, number: int, batch: Sequence[tuple[str, Content]], encode: Encode, identity: str
) -> tuple[int, bool]:
    """The passages of a shard, and whether it had to be encoded."""
    return len(batch), write_shard(folder, number, batch, encode, identity)


def finish(folder: Path, count: int) -> "Shards":
    """Join the first ``count`` shards, which are all there are, and remove others.

    The next call resumes a killed one; no shard is removed before its rows are on the disk.

    Raises:
        UserError: there are none, or one is missing.
    """
    if count == 0:
        raise UserError("there are no passages to encode")
    if (joined := _joined(folder)) and len(joined["shards"]) != count:
        _split(folder)
    if not (folder / MANIFEST).exists():
        if not (folder / JOINING).exists():
            _begin_joining(folder, count)
        _join(folder, _read(folder / JOINING))
        (folder / JOINING).rename(folder / MANIFEST)
    for stale in [*folder.glob("[0-9]" * 5), *folder.glob("." + "[0-9]" * 5 + ".*")]:
        shutil.rmtree(stale)
    for name in (MANIFEST, JOINING):
        for abandoned in folder.glob(f".{name}.*.part"):
            abandoned.unlink()
    return read(folder)


def read(folder: Path) -> "Shards":
    """Open complete shards.

    Raises:
        UserError: there are none, or they are not complete.
    """
    manifest = _read(folder / MANIFEST)
    if not manifest:
        raise UserError(f"{folder}: holds no index, or one that is not finished; index the passages first")
    counts = tuple(shard["passages"] for shard in manifest["shards"])
    seconds = sum(shard["seconds"] for shard in manifest["shards"])
    return Shards(folder, manifest["key"], counts, seconds, tuple(manifest["arrays"]))


@dataclass(frozen=True)
class Shards:
    """Encoded passages on the disk.

    Attributes:
        folder: of the arrays.
        key: sha256 of everything that decides their content.
        counts: passages of each shard that they were encoded in.
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
        """The passages in blocks of the size that they were encoded in."""
        return self.blocks(SHARD)

    def blocks(self, passages: int) -> Iterator[tuple[int, Arrays]]:
        """The passages in blocks: the row of the first, and their arrays: read-only memory maps, and ``lengths``."""
        for start in range(0, len(self), passages):
            end = min(start + passages, len(self))
            if "lengths" not in self.arrays:
                yield start, {name: self.array(name)[start:end] for name in self.arrays}
                continue
            offsets = self.offsets[start : end + 1]
            rows = slice(offsets[0], offsets[-1])
            ragged = {name: self.array(name)[rows] for name in self.arrays if name != "lengths"}
            yield start, {**ragged, "lengths": np.diff(offsets)}

    def array(self, name: str) -> NDArray[Any]:
        """All rows of one array, a read-only memory map.

        Raises:
            UserError: it was removed.
        """
        if name not in self._maps:
            try:
                self._maps[name] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
            except FileNotFoundError as error:
                raise UserError(
                    f"{self.folder}: {name}.npy is missing: making an index of it removes it; index the passages again "
                    "in another folder"
                ) from error
        return self._maps[name]

    def remove(self, name: str) -> None:
        """Remove an array that the index made from it no longer needs."""
        (self.folder / f"{name}.npy").unlink(missing_ok=True)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(passages + 1,): where each passage's rows begin, and where the last one's end."""
        return self.array("offsets")

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """The position of each row's passage id among all ids in ascending order."""
        return rank_of(self.ids)

    @property
    def ids(self) -> NDArray[np.bytes_]:
        """The passage ids, UTF-8, in the order of the rows."""
        return self.array("ids")

    @cached_property
    def resident(self) -> dict[str, Any]:
        """The blocks that a device keeps in its memory; see :mod:`search.resident`."""
        return {}

    @cached_property
    def _maps(self) -> dict[str, NDArray[Any]]:
        """Kept, as a new map is read page by page again."""
        return {}


@contextmanager
def building(folder: Path, name: str, state: Any) -> Iterator[bool]:
    """Make an index of shards once, even if two processes want it.

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
        folder.mkdir(parents=True, exist_ok=True)
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
    """Whether the index of that name is complete, and was made of ``state``."""
    return bool(state_of(folder, name) == state)


def state_of(folder: Path, name: str) -> Any:
    """What the index of that name was made of; empty if there is none, or an incomplete one."""
    return _read(folder / f"{name}.json")


def _joined(folder: Path) -> Any:
    """What is joined, or being joined; empty if nothing is."""
    return _read(folder / MANIFEST) or _read(folder / JOINING)


def _begin_joining(folder: Path, count: int) -> None:
    """Create the arrays, and note what will be in them."""
    about = [_read(folder / f"{number:05d}" / "shard.json") for number in range(count)]
    if not all(about):
        raise UserError(f"{folder}: shard {about.index({}):05d} of the encoded passages is missing")
    names = [name for name in about[0]["arrays"] if name != "ids"]
    for name in ["ids", *names]:
        dtypes, shapes = zip(*(shard["arrays"][name] for shard in about), strict=True)
        rows = sum(shape[0] for shape in shapes)
        if name == "lengths":
            create_array(folder / "offsets.npy", np.int64, (rows + 1,))
        else:
            create_array(folder / f"{name}.npy", np.result_type(*dtypes), (rows, *shapes[0][1:]))
    key = hashlib.sha256("".join(shard["key"] for shard in about).encode()).hexdigest()
    manifest = {
        "key": key,
        "arrays": names,
        "shards": [
            {
                "key": shard["key"],
                "passages": shard["passages"],
                "seconds": shard["seconds"],
                "rows": {name: shape[0] for name, (_, shape) in shard["arrays"].items()},
            }
            for shard in about
        ],
    }
    atomic.write_text(folder / JOINING, json.dumps(manifest) + "\n")


def _join(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Copy what is left of the shards into the arrays; a shard without ``shard.json`` has been copied."""
    for number, starts in enumerate(_starts(manifest)):
        path = folder / f"{number:05d}"
        if (path / "shard.json").exists():
            for name, start in starts.items():
                rows = np.load(path / f"{name}.npy", mmap_mode="r")
                if name == "lengths":
                    put_rows(folder / "offsets.npy", start + 1, _rows_before(starts) + np.cumsum(rows, dtype=np.int64))
                else:
                    put_rows(folder / f"{name}.npy", start, rows)
            (path / "shard.json").unlink()
        shutil.rmtree(path, ignore_errors=True)


def _split(folder: Path) -> None:
    """Turn joined arrays into shards again: some are of passages that have changed since."""
    with atomic.lock(folder):
        manifest = _joined(folder)
        if not manifest:
            return
        names = ["ids", *manifest["arrays"]]
        files = {name: folder / f"{'offsets' if name == 'lengths' else name}.npy" for name in names}
        if all(file.exists() for file in files.values()):
            arrays = {name: np.load(file, mmap_mode="r") for name, file in files.items()}
            for number, (shard, starts) in enumerate(zip(manifest["shards"], _starts(manifest), strict=True)):
                if (folder / f"{number:05d}" / "shard.json").exists():
                    continue
                rows = {name: arrays[name][start : start + shard["rows"][name]] for name, start in starts.items()}
                rows["ids"] = np.array(rows["ids"].tolist())  # as narrow as the shard's own ids
                if "lengths" in rows:
                    first = starts["lengths"]
                    rows["lengths"] = np.diff(arrays["lengths"][first : first + shard["passages"] + 1]).astype(np.int32)
                about = {name: shard[name] for name in ("key", "passages", "seconds")}
                _write_folder(folder / f"{number:05d}", rows, about)
        for path in (folder / MANIFEST, folder / JOINING, *files.values()):
            path.unlink(missing_ok=True)


def _starts(manifest: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """For each shard, the row of each array where its own rows begin."""
    starts = dict.fromkeys(manifest["shards"][0]["rows"], 0)
    for shard in manifest["shards"]:
        yield dict(starts)
        for name, rows in shard["rows"].items():
            starts[name] += rows


def _rows_before(starts: Mapping[str, int]) -> int:
    """Rows before a shard, of the arrays whose rows per passage are in ``lengths``."""
    return next(start for name, start in starts.items() if name not in ("ids", "lengths"))


def _write_folder(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in sorted(arrays.items())}
    with atomic.folder(path) as staging:
        for name, array in arrays.items():
            write_array(staging / f"{name}.npy", array)
        (staging / "shard.json").write_text(json.dumps({**about, "arrays": shapes}) + "\n", encoding="utf-8")


def _check_space(folder: Path, passages: int, total: int, index_share: float) -> None:
    """Refuse a disk that is too small, judging by the first shard, which has ``passages`` of ``total``."""
    first = sum(file.stat().st_size for file in (folder / f"{0:05d}").iterdir())
    need, free = first * (1 + index_share) * total / passages, first + shutil.disk_usage(folder).free
    expected = f"{total:,} passages take about {need / 1e9:,.1f} GB there"
    LOG.info("%s: %s", folder, expected)
    if need > free:
        raise UserError(f"{folder}: {expected}, but {free / 1e9:,.1f} GB are free; make room, or index fewer passages")


def _key(identity: str, batch: Sequence[tuple[str, Content]]) -> str:
    digest = hashlib.sha256(identity.encode())
    for passage in batch:
        for part in passage:
            encoded = part.encode() if isinstance(part, str) else part.tobytes()
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _refuse_nan(arrays: Arrays, batch: Sequence[tuple[str, Content]]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            first, last = batch[0][0], batch[-1][0]
            raise UserError(f"the model gives NaN or infinity ({name}) for a passage between {first} and {last}")


def index_bytes(folder: Path) -> int:
    """Bytes of all files that a search of an index reads."""
    derived = [folder / name for name in MADE_OF_SHARDS if (folder / name).exists()]
    return sum(map(bytes_below, derived or [folder]))


def bytes_below(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
