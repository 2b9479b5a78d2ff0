"""Passages encoded once per model: one file per array, to which each finished shard of passages is appended.

A folder holds the arrays that the model made of the passages (one ``.npy`` each), ``ids.npy`` (the passage ids as
UTF-8 bytes) and ``done.jsonl``, a line for each shard whose rows are on the disk: how many there are, their digests,
and the shard's key, the sha256 of what encoded it and of the ids and texts in their order. A killed run resumes after
the last line; if some passages have changed, or rows are not as they were written, it resumes before the first shard
that holds one. ``shards.json`` is there when all passages are.

An array has one row per passage, unless the shards hold ``lengths`` (rows of each passage): then passage ``i`` has the
rows ``offsets[i]`` to ``offsets[i + 1]``.
"""

import hashlib
import itertools
import json
import operator
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.digests import file_digests
from eval_kit.search.arrays import append_rows, cut_rows, row_count, rows_digest, write_array
from eval_kit.search.topk import rank_of

SHARD, FIRST = 2_048, 32
"""Passages in a shard: how many are in memory at once, and a killed encoding may lose; the first are small, each twice
the one before it, so that something is kept, and the speed known, within seconds."""
PROBE = (
    "what is the largest whale",
    "The blue whale, up to 30 metres long, is the largest animal that is known to have lived.",
    "Überraschung: 3.14 % of naïve façades, in 1999!",
    " ".join(f"A long text says {number} times that it is long." for number in range(60)),
)
"""What a model makes of these is kept beside its passages, and compared at each start: whatever changed, it shows."""
TOLERANCE = 1e-3
"""Of the greatest number in it: more than processors differ by, or a service from call to call."""
MANIFEST = "shards.json"
DONE = "done.jsonl"
_OF_SHARD = {"key", "passages", "seconds", "rows", "digests"}
_OF_ALL = {"key", "passages", "seconds", "rows"}

type Arrays = Mapping[str, NDArray[Any]]
type Encode = Callable[[list[str]], Arrays]
"""Texts to arrays: what one shard holds of its passages."""
type Spread = Callable[[Encode, Iterable[list[str]]], Iterator[Arrays]]
"""Like ``map``: the arrays of each shard from its texts, in their order, perhaps computed elsewhere."""
type Ids = NDArray[np.bytes_]


def with_probe(identity: str, folder: Path, encode: Encode) -> str:
    """The identity, and what the encoder makes of fixed texts; as it was before, where that is as good as the same."""
    now = {name: np.asarray(array) for name, array in sorted(encode(list(PROBE)).items())}
    path = folder / "probe.npz"
    try:
        try:
            kept = dict(np.load(path)) if path.exists() else {}
        except (ValueError, EOFError, zipfile.BadZipFile):  # half-copied
            kept = {}
        if not _are_alike(kept, now):
            folder.mkdir(parents=True, exist_ok=True)
            with atomic.whole(path) as part, part.open("wb") as file:
                np.savez(file, allow_pickle=False, **now)
            kept = now
    except OSError as error:
        raise UserError(f"{folder}: the encoded passages cannot be kept: {error.strerror or error}") from error
    return f"{identity} {hashlib.sha256(b''.join(array.tobytes() for array in kept.values())).hexdigest()}"


def write(
    passages: Iterable[tuple[str, str]],
    folder: Path,
    encode: Encode,
    identity: str,
    doing: str = "encoding passages",
    unit: str = "passages",
    spread: Spread = map,
    size: int | None = None,
) -> "Shards":
    """Encode into ``folder`` the passages that are not there yet. A second process waits for the first.

    Args:
        passages: read once; only the shards in hand are kept in memory.
        folder: created if need be; shards of other passages or another model are replaced.
        encode: called with at most ``size`` texts at a time.
        identity: of everything that decides what ``encode`` makes of a text: weights, lengths, prompts.
        doing: for the progress line.
        unit: what the progress line counts.
        spread: calls ``encode``, or what does the same in other processes.
        size: passages in a shard; None for ``FIRST`` and then more, up to ``SHARD``.

    Raises:
        UserError: no passages, a model that gives NaN, or a disk that is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        total = operator.length_hint(passages) or None
        with FileLock(folder / ".lock"), counting(doing, unit, total) as advance:
            log = _Log(folder)
            done, read, new = log.keys(), list[tuple[str, Ids]](), list[int]()
            why = "what was kept is damaged" if log.is_damaged else f"the model or {unit} changed"

            def texts_to_encode() -> Iterator[list[str]]:
                nonlocal why
                for number, batch in enumerate(_batches(passages, size)):
                    key = _key(identity, batch)
                    read.append((key, np.array([passage_id.encode() for passage_id, _ in batch])))
                    if not new and done[number : number + 1] == [key]:
                        if log.holds(number):
                            advance(len(batch))
                            continue
                        why = "what was kept is damaged"
                    if not new and (number < len(done) or log.is_damaged):
                        kept = f"all but the first {sum(len(ids) for _, ids in read[:-1]):,}" if number else "all"
                        warnings.warn(f"{folder}: {why}; {doing} again, {kept}", stacklevel=3)
                    new.append(number)
                    yield [text for _, text in batch]

            start, position = time.monotonic(), -1
            try:
                for position, arrays in enumerate(spread(encode, texts_to_encode())):
                    key, ids = read[new[position]]
                    _refuse_nan(arrays, ids)
                    log.append(new[position], key, len(ids), time.monotonic() - start, arrays)
                    start = time.monotonic()
                    advance(len(ids))
            except KeyboardInterrupt:
                kept = sum(len(ids) for _, ids in read[: new[position + 1] if len(new) > position + 1 else None])
                of_all = f" of {total:,}" if total else ""
                print(f"{kept:,}{of_all} {unit} kept; the same command goes on", file=sys.stderr)
                raise
            return log.finish([ids for _, ids in read])
    except OSError as error:
        raise UserError(f"{folder}: the encoded passages cannot be kept: {error.strerror or error}") from error


class _Log:
    """The shards of a folder whose rows are on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_cut = False
        lines = (folder / DONE).read_bytes().splitlines() if (folder / DONE).exists() else []
        shards = (_document(line) for line in lines)
        self._done = list(itertools.takewhile(lambda shard: set(shard) == _OF_SHARD, shards))
        self.is_damaged = len(self._done) < len(lines) or (not lines and (folder / MANIFEST).exists())

    def keys(self) -> list[str]:
        """The key of each shard."""
        return [shard["key"] for shard in self._done]

    def holds(self, number: int) -> bool:
        """Whether the rows of a shard are as they were written; one that an index of it has replaced counts as is."""
        for name, digest in self._done[number]["digests"].items():
            path, (start, end) = self._folder / f"{name}.npy", self._rows_of(name, number)
            if rows_digest(path, start, end) != digest and (path.exists() or not self._has_whole_index):
                return False
        return True

    @cached_property
    def _has_whole_index(self) -> bool:
        markers = [_document(path) for path in self._folder.glob("*.json") if path.name != MANIFEST]
        return any(marker.get("files") and _is_whole(self._folder, marker["files"]) for marker in markers)

    def _rows_of(self, name: str, number: int) -> tuple[int, int]:
        return self._done[number - 1]["rows"][name] if number else 0, self._done[number]["rows"][name]

    def append(self, number: int, key: str, passages: int, seconds: float, arrays: Arrays) -> None:
        """Write the rows of a shard after those of the shards before it, and forget any others."""
        if not self._is_cut:
            self._cut(number)
        rows, digests = dict[str, int](), dict[str, str]()
        for name, array in arrays.items():
            before = self._done[-1]["rows"][name] if number else 0
            rows[name] = before + len(array)
            digests[name] = append_rows(self._folder / f"{name}.npy", before, array)
        self._done.append({"key": key, "passages": passages, "seconds": seconds, "rows": rows, "digests": digests})
        self._save()

    def finish(self, ids: Sequence[Ids]) -> "Shards":
        """Forget the shards beyond those of these ids, and write what makes the folder complete.

        Raises:
            UserError: there are no passages.
        """
        if not ids:
            raise UserError("there are no passages to encode")
        key = hashlib.sha256("".join(self.keys()[: len(ids)]).encode()).hexdigest()
        rows = self._done[len(ids) - 1]["rows"]
        is_longer = any(row_count(self._folder / f"{name}.npy") > count for name, count in rows.items())
        if _document(self._folder / MANIFEST).get("key") != key or is_longer:
            self._cut(len(ids))
        arrays = {"ids": np.concatenate(ids)}
        if "lengths" in rows:
            lengths = np.load(self._folder / "lengths.npy", mmap_mode="r")
            arrays["offsets"] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        for name, array in arrays.items():
            if not _is_array(self._folder / f"{name}.npy", array):
                write_array(self._folder / f"{name}.npy", array)
        totals = {name: sum(map(operator.itemgetter(name), self._done)) for name in ("passages", "seconds")}
        manifest = {"key": key, **totals, "rows": rows}
        if _document(self._folder / MANIFEST) != manifest:
            atomic.write_text(self._folder / MANIFEST, json.dumps(manifest) + "\n")
        return read(self._folder)

    def _cut(self, count: int) -> None:
        """Forget all but the first ``count`` shards, and remove the rows that do not belong to these."""
        self._is_cut = True
        (self._folder / MANIFEST).unlink(missing_ok=True)
        del self._done[count:]
        self._save()
        rows = self._done[-1]["rows"] if self._done else {}
        for path in self._folder.glob("*.npy"):
            if path.stem not in rows:
                path.unlink()
        for name in rows:
            path = self._folder / f"{name}.npy"
            if not path.is_file():
                raise UserError(f"{path}: is missing, and passages have changed; index them in another folder")
            cut_rows(path, rows[name])

    def _save(self) -> None:
        atomic.write_text(self._folder / DONE, "".join(json.dumps(shard) + "\n" for shard in self._done))


def read(folder: Path) -> "Shards":
    """Open encoded passages.

    Raises:
        UserError: there are none, not all of them are encoded, or an array has not as many rows as were written.
    """
    manifest = _document(folder / MANIFEST)
    if set(manifest) != _OF_ALL:
        raise UserError(f"{folder}: holds no index, or one that is not finished; index the passages first")
    for name, rows in (manifest["rows"] | {"ids": manifest["passages"]}).items():
        path = folder / f"{name}.npy"
        if path.exists() and (count := row_count(path)) != rows:
            raise UserError(f"{path}: is damaged, {count:,} of {rows:,} rows are there; index the passages again")
    return Shards(folder, manifest["key"], manifest["passages"], manifest["seconds"], tuple(manifest["rows"]))


@dataclass(frozen=True)
class Shards:
    """Encoded passages on the disk.

    Attributes:
        folder: of the arrays.
        key: sha256 of everything that decides their content.
        count: of the passages.
        seconds: that the encoding took, over all attempts.
        arrays: names of the arrays of a shard.
        resident: the blocks that a device keeps in its memory; see :mod:`eval_kit.search.resident`.
    """

    folder: Path
    key: str
    count: int
    seconds: float
    arrays: tuple[str, ...]
    resident: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    _maps: dict[str, NDArray[Any]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Kept, as a new map is read page by page again."""

    def __len__(self) -> int:
        """Passages in all."""
        return self.count

    def __iter__(self) -> Iterator[tuple[int, Arrays]]:
        """The passages in blocks of the size that they were encoded in."""
        return self.blocks(SHARD)

    def blocks(self, passages: int) -> Iterator[tuple[int, Arrays]]:
        """The passages in blocks: the row of the first, and their arrays: read-only memory maps, and ``lengths``."""
        with counting("going through the encoded passages", "passages", len(self)) as advance:
            for start in range(0, len(self), passages):
                end = min(start + passages, len(self))
                yield start, self._rows(start, end)
                advance(end - start)

    def _rows(self, start: int, end: int) -> Arrays:
        if "lengths" not in self.arrays:
            return {name: self.array(name)[start:end] for name in self.arrays}
        offsets = self.offsets[start : end + 1]
        rows = slice(offsets[0], offsets[-1])
        token_arrays = {name: self.array(name)[rows] for name in self.arrays if name != "lengths"}
        return {**token_arrays, "lengths": np.diff(offsets)}

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

    @property
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


@contextmanager
def building(folder: Path, name: str, state: str, files: Sequence[str]) -> Iterator[bool]:
    """Make the index ``name`` of the shards in ``folder`` once, even if two processes want it.

    Once it is complete, ``<name>.json`` holds the state, everything that decides the index, and the digests of its
    files, or of those in its folders.

    Yields:
        Whether it has to be made: it is not there, is of another state, or is damaged.

    Raises:
        UserError: the disk is full.
    """
    marker = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if is_built(folder, name, state):
                if _is_whole(folder, _document(marker)["files"]):
                    yield False
                    return
                warnings.warn(f"{folder}: the index {name} is damaged; it is made again", stacklevel=3)
            marker.unlink(missing_ok=True)
            yield True
            atomic.write_text(marker, json.dumps({"state": state, "files": file_digests(folder, files)}) + "\n")
    except OSError as error:
        raise UserError(f"{folder}: the index cannot be kept: {error.strerror or error}") from error


def is_built(folder: Path, name: str, state: str) -> bool:
    """Whether the index of that name is complete, and was made of ``state``."""
    return bool(_document(folder / f"{name}.json").get("state") == state)


def _is_whole(folder: Path, digests: Mapping[str, str]) -> bool:
    return file_digests(folder, [file for file in digests if (folder / file).is_file()]) == digests


def _batches(passages: Iterable[tuple[str, str]], size: int | None) -> Iterator[tuple[tuple[str, str], ...]]:
    rest, count = iter(passages), size or min(FIRST, SHARD)
    while batch := tuple(itertools.islice(rest, count)):
        yield batch
        count = size or min(2 * count, SHARD)


def _are_alike(one: Arrays, other: Arrays) -> bool:
    """Whether arrays are the same but for the rounding of processors."""
    if {name: array.shape for name, array in one.items()} != {name: array.shape for name, array in other.items()}:
        return False
    pairs = [(np.asarray(one[name], np.float64), np.asarray(other[name], np.float64)) for name in one]
    return all(np.allclose(a, b, rtol=0, atol=TOLERANCE * np.abs(b).max(initial=0)) for a, b in pairs)


def _key(identity: str, batch: Sequence[tuple[str, str]]) -> str:
    digest = hashlib.sha256(identity.encode())
    for passage in batch:
        for part in passage:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _document(source: Path | bytes) -> dict[str, Any]:
    """A JSON object; empty where there is none, or a damaged one."""
    try:
        document = json.loads(source if isinstance(source, bytes) else source.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _is_array(path: Path, array: NDArray[Any]) -> bool:
    try:
        return row_count(path) == len(array) and np.array_equal(np.load(path), array)
    except (OSError, ValueError):
        return False


def _refuse_nan(arrays: Arrays, ids: Ids) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            between = f"a passage between {ids[0].decode()} and {ids[-1].decode()}"
            hint = "; float16 may be too narrow for it: encode_precision=bfloat16, store=float32"
            why = hint if array.dtype == np.float16 else ""
            raise UserError(f"the model gives NaN or infinity ({name}) for {between}{why}")


def index_bytes(folder: Path) -> int:
    """Bytes of all files that a search of an index reads: PLAID's, where it lies beside what it was made from."""
    plaid = folder / "plaid"
    return sum(file.stat().st_size for file in (plaid if plaid.exists() else folder).rglob("*") if file.is_file())
