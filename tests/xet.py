"""What a Xet store keeps: files are rows of chunks, and the chunks lie in xorbs.

Formats as the installed ``hf_xet`` writes and reads them; the answer to a reconstruction query is that of version 1.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import lz4.frame


class Segment(NamedTuple):
    """A part of a file: the chunks ``first`` to ``end`` (excluded) of a xorb."""

    xorb: str
    first: int
    end: int


@dataclass(frozen=True)
class Xorb:
    """A block of chunks as it was sent, where each chunk ends in it, and the chunks' content."""

    packed: bytes
    ends: list[int]
    chunks: list[bytes]


class Store:
    """All xorbs, and all files by their Xet hash."""

    def __init__(self) -> None:
        self.xorbs: dict[str, Xorb] = {}
        self.files: dict[str, list[Segment]] = {}
        self.by_sha256: dict[str, str] = {}

    def add_xorb(self, hash: str, packed: bytes) -> bool:
        """Keep a xorb; whether it is new."""
        new = hash not in self.xorbs
        ends, chunks = zip(*_chunks(packed), strict=True)
        self.xorbs[hash] = Xorb(packed, list(ends), list(chunks))
        return new

    def add_shard(self, shard: bytes) -> dict[str, bytes]:
        """Keep the files of a shard; their contents by sha256."""
        contents = {}
        for hash, segments in _files(shard):
            content = b"".join(self._chunks_of(segments))
            self.files[hash] = segments
            contents[sha256 := hashlib.sha256(content).hexdigest()] = content
            self.by_sha256[sha256] = hash
        return contents

    def size(self, hash: str) -> int:
        """Bytes of a file."""
        return sum(map(len, self._chunks_of(self.files[hash])))

    def reconstruction(self, hash: str, asked: tuple[int, int] | None, url: str) -> dict[str, Any]:
        """How to put together the bytes ``asked`` (a start and an end) of a file; ``url`` is where the xorbs are."""
        start, stop = asked or (0, self.size(hash))
        terms, fetch, place, skipped = [], {}, 0, None
        for xorb, first, end in self.files[hash]:
            sizes = [len(chunk) for chunk in self.xorbs[xorb].chunks[first:end]]
            begins = [place + sum(sizes[:one]) for one in range(len(sizes))]
            place += sum(sizes)
            wanted = [one for one, begin in enumerate(begins) if begin < stop and begin + sizes[one] > start]
            if not wanted:
                continue
            if skipped is None:
                skipped = start - begins[wanted[0]]
            chunks = {"start": first + wanted[0], "end": first + wanted[-1] + 1}
            length = sum(sizes[wanted[0] : wanted[-1] + 1])
            terms.append({"hash": xorb, "unpacked_length": length, "range": chunks})
            ends = [0, *self.xorbs[xorb].ends]
            bytes_of_it = {"start": ends[chunks["start"]], "end": ends[chunks["end"]] - 1}
            where = {"range": chunks, "url": f"{url}/{xorb}", "url_range": bytes_of_it}
            fetch.setdefault(xorb, []).append(where)
        return {"offset_into_first_range": skipped or 0, "terms": terms, "fetch_info": fetch}

    def _chunks_of(self, segments: list[Segment]) -> Iterator[bytes]:
        for xorb, first, end in segments:
            yield from self.xorbs[xorb].chunks[first:end]


def _chunks(xorb: bytes) -> Iterator[tuple[int, bytes]]:
    """Where each chunk ends, and its content: a header of 8 bytes stands before its, maybe compressed, data."""
    place = 0
    while place + 8 <= len(xorb) and xorb[place : place + 7] != b"XETBLOB":
        packed = int.from_bytes(xorb[place + 1 : place + 4], "little")
        scheme = xorb[place + 4]
        size = int.from_bytes(xorb[place + 5 : place + 8], "little")
        data = xorb[place + 8 : place + 8 + packed]
        place += 8 + packed
        if scheme:
            data = lz4.frame.decompress(data)
        if scheme == 2:  # bytes grouped by their place in 4-byte words
            groups = [len(range(start, size, 4)) for start in range(4)]
            plain = bytearray(size)
            at = 0
            for start, length in enumerate(groups):
                plain[start::4] = data[at : at + length]
                at += length
            data = bytes(plain)
        assert len(data) == size
        yield place, data


def _files(shard: bytes) -> Iterator[tuple[str, list[Segment]]]:
    """The Xet hash of each file of a shard, and its segments."""
    place = 48
    while shard[place : place + 32] != b"\xff" * 32:
        file = _hash(shard, place)
        flags, count = struct.unpack_from("<II", shard, place + 32)
        place += 48
        segments = []
        for _ in range(count):
            segments.append(Segment(_hash(shard, place), *struct.unpack_from("<II", shard, place + 40)))
            place += 48
        place += 48 * (count if flags & 1 << 31 else 0) + 48 * bool(flags & 1 << 30)
        yield file, segments


def _hash(shard: bytes, place: int) -> str:
    return "".join(f"{word:016x}" for word in struct.unpack_from("<4Q", shard, place))
