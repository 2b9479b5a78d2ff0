"""The bytes of a file, in blocks, as they were before gzip, zstd, bzip2 or xz packed them."""

import bz2
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files.opening import check_no_pointer, open_file

MOST_GROWTH = 100
"""Unpacked bytes for each packed byte: text of runs packs 5 to 10 times, zeros a thousand times."""
SMALL_BYTES = 10 << 20
"""Up to this size unpacked, no growth is suspicious."""
_ROW_BYTES = 20
"""Bytes of a short row as text, for which a row of Parquet counts: millions of equal ones take almost none there."""
_LONGEST_LINE = 64 << 10
"""Bytes by which a block may be longer than asked for, to end with a line."""
_PACKED_BYTES = 128 << 10
"""Packed bytes to read at once."""
_UNPACKED_TOGETHER = 4 << 10
"""Packed bytes to unpack at once: zstd may make 32,000 bytes out of one."""
_PACKED = (
    (re.compile(rb"\x1f\x8b"), partial(zlib.decompressobj, wbits=31), b"\0"),
    # the second is a frame to skip, with which pzstd and seekable zstd begin
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), lambda: zstd().ZstdDecompressor(), b""),
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor, b""),
    (re.compile(rb"\xfd7zXZ"), lzma.LZMADecompressor, b"\0"),
)
"""How packed files begin, what unpacks a stream of theirs, and what may fill them up between streams."""

type Feed = Callable[[bytes], object]


def zstd() -> Any:
    """The module for zstd, imported for what is packed so."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def blocks(path: Path, size: int, feed: Feed | None = None) -> Iterator[bytes]:
    """The file's bytes in blocks of about ``size``, unpacked if its first bytes say how.

    ``feed`` takes the bytes as they are, packed or not.

    Raises:
        UserError: a file that cannot be opened; a packed one that grows more in unpacking than any text does, or that
            holds another.
        EOFError: a packed file that is truncated or damaged, or was packed with more memory than is allowed here.
    """
    with open_file(path) as file:
        magic = file.read(32)
        file.seek(0)
        check_no_pointer(path, magic)
        raw = _Raw(file, feed)
        packing = next((each[1:] for each in _PACKED if each[0].match(magic)), None)
        if packing is None:
            while block := raw.read(raw.to_line_end(size)):
                yield block
            return
        room = room_of(file)
        for number, block in enumerate(_unpacked(raw, size, *packing)):
            if not number and any(each[0].match(block) for each in _PACKED):
                raise UserError(f"{path} is packed twice", do="Unpack it once")
            room -= len(block)
            if room < 0:
                raise UserError(f"{path} unpacks to more than {MOST_GROWTH} times its size", "No text does that")
            yield block


def room_of(file: BufferedReader) -> int:
    """The bytes that a file may unpack to."""
    return max(SMALL_BYTES, MOST_GROWTH * os.fstat(file.fileno()).st_size)


def check_rows(path: Path, rows: int, room: int) -> None:
    """Refuse a Parquet file whose rows would be more text than any file of text may unpack to."""
    if rows * _ROW_BYTES > room:
        raise UserError(f"{path} has {rows:,} rows in too few bytes to be a table of texts")


class _Raw:
    """A file's bytes as they are, fed to a digest on their way."""

    def __init__(self, file: BufferedReader, feed: Feed | None) -> None:
        self._file = file
        self._feed = feed

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        if self._feed is not None:
            self._feed(block)
        return block

    def to_line_end(self, size: int) -> int:
        """``size``, and as much more as it takes to end with a line, unless that is too long."""
        start = self._file.tell()
        self._file.seek(start + size)
        rest = len(self._file.readline(_LONGEST_LINE))
        self._file.seek(start)
        return size + rest


def _unpacked(raw: _Raw, size: int, new_stream: Callable[[], Any], padding: bytes = b"") -> Iterator[bytes]:
    """Unpack a little at a time, one stream after the other; gzip files may be filled up with ``padding``."""
    stream = None
    pieces, ready = [], 0
    while block := raw.read(_PACKED_BYTES):
        for start in range(0, len(block), _UNPACKED_TOGETHER):
            piece = block[start : start + _UNPACKED_TOGETHER]
            while piece := piece if stream else piece.lstrip(padding):
                stream = stream or new_stream()
                try:
                    pieces.append(stream.decompress(piece))
                except Exception as error:  # each format has a kind of its own
                    raise EOFError(_why_damaged(error)) from error
                ready += len(pieces[-1])
                piece = stream.unused_data
                stream = None if stream.eof else stream
            if ready >= size:
                yield b"".join(pieces)
                pieces, ready = [], 0
    yield b"".join(pieces)
    if stream is not None:
        raise EOFError(_why_damaged())


def _why_damaged(error: Exception | None = None) -> str:
    too_large = "; or it was packed with --long" if "memory" in str(error) else ""
    return f"the compressed file is truncated or damaged from about this line on{too_large}"
