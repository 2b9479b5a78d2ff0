"""Passages encoded once per model: one file per array, to which each finished shard of passages is appended.

A folder holds the arrays that the model made of the passages (one ``.npy`` each), ``ids.npy`` (the passage ids as
UTF-8 bytes) and ``done.jsonl``, a line for each shard whose rows are on the disk: how many there are, and the shard's
key, the sha256 of what encoded it and of the ids and texts in their order. A killed run resumes after the last line; if
some passages have changed, or rows are missing, it resumes before the first shard that they belong to. ``shards.json``
is there when all passages are; its key, the sha256 of all keys, is what the folder holds.

An array has one row per passage, unless the shards hold ``lengths`` (rows of each passage): then passage ``i`` has the
rows ``offsets[i]`` to ``offsets[i + 1]``.
"""

import hashlib
import itertools
import json
import math
import operator
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from eval_kit.console import counting
from eval_kit.documents.document import Count
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.search.arrays import append_rows, cut_rows, row_count, write_array
from eval_kit.search.topk import rank_of

SHARD, FIRST = 2_048, 32
"""Passages in a shard: how many are in memory at once, and a killed encoding may lose, about a minute of MiniLM's work
on two cores. The first shards are small, each twice the one before it, so that something is kept, and the speed known,
within seconds."""
_NOT_KEPT = "Choose another folder for the encoded passages"
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
        kept = dict(np.load(path))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # there is none, or it is half-copied
        kept = {}
    if not _are_alike(kept, now):
        with disk_errors(folder, _NOT_KEPT):
            folder.mkdir(parents=True, exist_ok=True)
            with atomic.whole(path) as part, part.open("wb") as file:
                np.savez(file, allow_pickle=False, **now)
        kept = now
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

    ``encode`` is called with at most ``size`` texts at a time (None: ``FIRST``, then more, up to ``SHARD``); only the
    shards in hand are in memory, and those of other passages or another model are replaced. ``identity`` is of all that
    decides what it makes of a text: weights, lengths, prompts. ``spread`` calls it, or what does the same in other
    processes.
    """
    total, done, read = operator.length_hint(passages) or None, list[dict[str, Any]](), list[tuple[str, Ids]]()

    def texts_to_encode() -> Iterator[list[str]]:
        is_new = False
        for number, batch in enumerate(_batches(passages, size)):
            read.append((_key(identity, batch), np.array([passage_id.encode() for passage_id, _ in batch])))
            if not is_new and number < len(done) and done[number]["key"] == read[-1][0]:
                advance(len(batch))
                continue
            if not is_new:
                if done[number:] or (folder / MANIFEST).exists():
                    kept = f"all but the first {sum(len(ids) for _, ids in read[:-1]):,}"
                    why = f"The model or {unit} changed, or files in {folder} are damaged"
                    warnings.warn(f"{why}. The kit is {doing} again, {kept}", stacklevel=3)
                _forget(folder, done, number)
            is_new = True
            yield [text for _, text in batch]

    with disk_errors(folder, _NOT_KEPT):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic.file_lock(folder / ".lock"), counting(doing, unit, total) as advance:
            done += _shards_done(folder)
            for arrays in spread(encode, texts_to_encode()):
                key, ids = read[len(done)]
                _refuse_nan(arrays, ids)
                done.append(_appended(folder, arrays, key, len(ids), done))
                advance(len(ids))
            if not read:
                raise UserError("There are no passages to encode")
            if len(read) < len(done):
                _forget(folder, done, len(read))
            return _finished(folder, done, np.concatenate([ids for _, ids in read]))


def _shards_done(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of the shards whose rows are on the disk; an index stands for an array that it has replaced."""
    rows = {path.stem: row_count(path) for path in folder.glob("*.npy")}
    replaced = math.inf if any(path.name != MANIFEST for path in folder.glob("*.json")) else -1
    for line in (folder / DONE).read_bytes().splitlines() if (folder / DONE).exists() else ():
        try:
            shard: dict[str, Any] = {**msgspec.convert(_document(line), _Shard)}
        except msgspec.ValidationError:  # damaged, or an earlier kit's
            return
        if any(rows.get(name, replaced) < end for name, end in shard["rows"].items()):
            return
        yield shard


def _forget(folder: Path, done: list[dict[str, Any]], count: int) -> None:
    """Forget all but the first ``count`` shards; rows of others are written over, or cut off at the end."""
    del done[count:]
    (folder / MANIFEST).unlink(missing_ok=True)
    atomic.write_text(folder / DONE, "".join(map(_line, done)))
    for path in folder.glob("*.npy") if not count else ():  # perhaps another model's, of other names
        path.unlink()


def _appended(
    folder: Path, arrays: Arrays, key: str, passages: int, done: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Write the rows of a shard after those of the shards that are done, and only then its line, which is returned."""
    rows = dict[str, int]()
    for name, array in arrays.items():
        path, before = folder / f"{name}.npy", done[-1]["rows"][name] if done else 0
        if before and not path.exists():
            raise UserError(f"{path} is missing, and the passages have changed", do="Index them in another folder")
        rows[name] = before + len(array)
        append_rows(path, before, array)
    shard = {"key": key, "passages": passages, "rows": rows}
    with (folder / DONE).open("a") as file:
        file.write(_line(shard))
        file.flush()
        os.fsync(file.fileno())
    return shard


def _finished(folder: Path, done: Sequence[Mapping[str, Any]], ids: Ids) -> "Shards":
    """Write what makes the folder complete, unless it is."""
    rows: dict[str, int] = done[-1]["rows"]
    key = hashlib.sha256("".join(shard["key"] for shard in done).encode()).hexdigest()
    manifest = {"key": key, "passages": sum(shard["passages"] for shard in done), "rows": rows}
    is_complete = _document(folder / MANIFEST).items() >= manifest.items()
    of_passages = {"ids": ids}
    if "lengths" in rows:
        lengths = np.load(folder / "lengths.npy", mmap_mode="r")[: rows["lengths"]]
        of_passages["offsets"] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    for name, array in of_passages.items():
        if not is_complete or row_count(folder / f"{name}.npy") != len(array):
            write_array(folder / f"{name}.npy", array)
    for name, end in rows.items():
        if not is_complete or row_count(folder / f"{name}.npy") > end:
            cut_rows(folder / f"{name}.npy", end)
    if not is_complete:
        atomic.write_text(folder / MANIFEST, _line(manifest))
    return read(folder)


class _Shard(TypedDict):
    """A line of ``done.jsonl``, and ``shards.json``."""

    key: str
    passages: Count
    rows: dict[str, Count]


def _line(document: Mapping[str, Any]) -> str:
    return json.dumps(document) + "\n"


def read(folder: Path) -> "Shards":
    """Open encoded passages."""
    try:
        manifest = msgspec.convert(_document(folder / MANIFEST), _Shard)
    except msgspec.ValidationError:
        raise UserError(f"{folder} has no finished index", do="Index the passages first") from None
    for name, rows in (manifest["rows"] | {"ids": manifest["passages"]}).items():
        path = folder / f"{name}.npy"
        if path.exists() and (count := row_count(path)) != rows:
            raise UserError(f"{path} is damaged", f"It has {count:,} of {rows:,} rows", "Index the passages again")
    return Shards(folder, manifest["key"], manifest["passages"], tuple(manifest["rows"]))


@dataclass(frozen=True)
class Shards:
    """Encoded passages on the disk, ``count`` of them, in ``arrays`` of these names.

    The key is the sha256 of everything that decides their content; ``resident`` are blocks that a device keeps in its
    memory (:mod:`eval_kit.search.resident`).
    """

    folder: Path
    key: str
    count: int
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
        """All rows of one array, a read-only memory map."""
        if name not in self._maps:
            try:
                self._maps[name] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
            except FileNotFoundError as error:
                raise UserError(
                    f"{name}.npy is missing in {self.folder}",
                    "Making an index of it removes it",
                    "Index the passages again in another folder",
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

    Once it is complete, ``<name>.json`` holds the state, everything that decides the index, and the sizes of its files,
    or of those in its folders. Yields whether it has to be made: it is not there, is of another state, or its files are
    not as long as they were.
    """
    marker = folder / f"{name}.json"
    with disk_errors(folder, _NOT_KEPT):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic.file_lock(folder / ".lock"):
            if _document(marker) == {"state": state, "files": _sizes(folder, files)}:
                yield False
                return
            marker.unlink(missing_ok=True)
            yield True
            atomic.write_text(marker, _line({"state": state, "files": _sizes(folder, files)}))


def is_built(folder: Path, name: str, state: str) -> bool:
    """Whether the index of that name is complete, and was made of ``state``."""
    return bool(_document(folder / f"{name}.json").get("state") == state)


def _sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """The bytes of each file of these names, or below a folder of one."""
    files = [file for name in names for file in [folder / name, *(folder / name).rglob("*")] if file.is_file()]
    return {str(file.relative_to(folder)): file.stat().st_size for file in sorted(files)}


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


def _refuse_nan(arrays: Arrays, ids: Ids) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            between = f"a passage between {ids[0].decode()} and {ids[-1].decode()}"
            wider = "Try encode_precision=bfloat16 and store=float32, as float16 may be too narrow"
            raise UserError(
                f"The model gives NaN or infinity ({name}) for {between}", do=wider if array.dtype == np.float16 else ""
            )


def index_bytes(folder: Path) -> int:
    """Bytes of all files that a search of an index reads: PLAID's, where it lies beside what it was made from."""
    plaid = folder / "plaid"
    return sum(file.stat().st_size for file in (plaid if plaid.exists() else folder).rglob("*") if file.is_file())
