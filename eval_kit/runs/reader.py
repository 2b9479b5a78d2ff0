"""The strict run reader: TREC (6 columns) or MS MARCO (3 columns) runs, plain, gzip or zstd.

A run is read in pieces of whole lines by a fast columnar parser that accepts only what is beyond doubt. A piece
that it does not accept goes to a slow line-by-line check, whose only job is to say what is wrong and where.
"""

import math
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl
import zstandard

from eval_kit.files.faults import Faults, RunError
from eval_kit.files.opening import MOST_GROWTH, SMALL_BYTES, open_file
from eval_kit.files.text import packed_by

PIECE_BYTES = 8 << 20
PACKED_BYTES = 128 << 10
"""Packed bytes to read at once."""
UNPACKED_TOGETHER = 4 << 10
"""Packed bytes to unpack at once: zstd may make 32,000 bytes out of one."""
LONGEST_FIELD = 8 << 10
"""Bytes; the longest ids, web addresses, have two thousand."""
LONGEST_LINE = 64 << 10
HIGHEST_RANK = 10_000_000

TREC = "query Q0 passage rank score tag"
MS_MARCO = "query passage rank"
_LAYOUTS = {6: TREC, 3: MS_MARCO}
_SCHEMAS = {
    6: {
        "query_id": pl.String(),
        "q0": pl.String(),
        "passage_id": pl.String(),
        "rank": pl.Int64(),
        "score": pl.Float64(),
        "tag": pl.String(),
    },
    3: {"query_id": pl.String(), "passage_id": pl.String(), "rank": pl.Int64()},
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = re.compile(rb"[ \t]+")
_EDGE_BLANKS = re.compile(rb"^[ \t]+|[ \t]+$", re.MULTILINE)
_WHOLE_NUMBER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


type Feed = Callable[[bytes], object]


class Form(NamedTuple):
    """What the first line of a run says of all its lines: the columns, and whether they end as on Windows."""

    columns: int
    crlf: bool


def read_pieces(path: Path, piece_bytes: int = PIECE_BYTES, feed: Feed | None = None) -> Generator[pl.DataFrame]:
    """Read a run, piece by piece, in file order.

    Args:
        path: the file.
        piece_bytes: about how much text to parse at once.
        feed: takes the file's bytes as they are, compressed or not.

    Yields:
        ``query_id`` and ``passage_id`` (strings), ``score`` (finite float64; for MS MARCO runs minus the rank) and
        the rank column (int64), called ``rank`` where it decides (MS MARCO runs) and ``stated_rank`` where the score
        does; one row per line, up to the first piece with a fault.

    Raises:
        RunError: after the whole file was read, with its first faults and how many more there are.
    """
    faults = Faults(path)
    form = Form(0, crlf=False)
    line = 1
    try:
        pieces = _pieces(_blocks(path, piece_bytes, feed))
        first = next(pieces, b"")
        if first:
            form = _form(first, faults)
            faults.raise_any()
        for piece, frame in _ahead(partial(_parse, form=form), chain([first] if first else [], pieces)):
            if frame is not None:
                if not faults.count:
                    yield frame
            elif not _find_faults(piece, form, line, faults):
                faults.add(line, "cannot be read from this line on")
            line += piece.count(b"\n") if frame is None else frame.height
    except (EOFError, zlib.error, zstandard.ZstdError) as error:
        too_large = "; or it was packed with --long" if "memory" in str(error) else ""
        faults.add(line, f"the compressed file is truncated or damaged from about this line on{too_large}")
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not form.columns and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()


def _ahead[Item, Result](function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in order, while a thread works on the next one.

    More threads would only hold more pieces, as polars parses each with several.
    """
    with ThreadPoolExecutor(1) as pool:
        waiting: tuple[Item, Future[Result]] | None = None
        for item in items:
            before, waiting = waiting, (item, pool.submit(function, item))
            if before:
                yield before[0], before[1].result()
        if waiting:
            yield waiting[0], waiting[1].result()


def first_tag(path: Path) -> str:
    """The sixth column of a run's first line; empty for runs of three columns."""
    line = next(_pieces(_blocks(path, LONGEST_LINE, None)), b"").split(b"\n", 1)[0]
    fields = _fields(line.removesuffix(b"\r"))
    return fields[5].decode("utf-8", "replace") if len(fields) == len(_SCHEMAS[6]) else ""


def _parse(piece: bytes, form: Form) -> pl.DataFrame | None:
    """The rows of a piece, or None if any of them is in doubt."""
    if _has_overlong_line(piece):
        return None
    if form.crlf:
        if piece.count(b"\r\n") < piece.count(b"\n"):
            return None
        piece = piece.replace(b"\r\n", b"\n")
    if b"\r" in piece or b"\0" in piece or (_BYTE_ORDER_MARK[:1] in piece and _BYTE_ORDER_MARK in piece):
        return None  # searching for the first byte alone comes first: it is many times faster
    if not piece.endswith(b"\n") and not piece[piece.rfind(b"\n") + 1 :].strip(b" \t"):
        return None  # blanks at the end of the file are a line too, which the parser would skip
    tabs, spaces = b"\t" in piece, b" " in piece
    if not (tabs and spaces):
        frame = _parse_separated(piece, "\t" if tabs else " ", form.columns)
        if frame is not None:
            return frame
    return _parse_separated(_BLANKS.sub(b"\t", _EDGE_BLANKS.sub(b"", piece)), "\t", form.columns)


def _has_overlong_line(piece: bytes) -> bool:
    """Whether a line has more than :data:`LONGEST_LINE` bytes; looks at one line end in each so many bytes."""
    start = 0
    while len(piece) - start > LONGEST_LINE:
        end = piece.rfind(b"\n", start, start + LONGEST_LINE + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def _parse_separated(piece: bytes, separator: str, columns: int) -> pl.DataFrame | None:
    schema = _SCHEMAS[columns]
    header = separator.join(schema).encode() + b"\n"  # polars would take a piece that begins like zlib or zstd for it
    try:
        frame = pl.read_csv(header + piece, separator=separator, schema=schema, quote_char=None)
    except pl.exceptions.PolarsError:
        return None
    if any(frame.null_count().row(0)) or not frame["rank"].is_between(0, HIGHEST_RANK).all():
        return None
    if max(frame.select(pl.col(pl.String).str.len_bytes().max()).row(0)) > LONGEST_FIELD:
        return None
    if columns == 3:
        return frame.select("query_id", "passage_id", "rank", score=-pl.col("rank").cast(pl.Float64))
    if not frame["score"].is_finite().all():
        return None
    return frame.select("query_id", "passage_id", "score", stated_rank="rank")


def _form(piece: bytes, faults: Faults) -> Form:
    """What the first line says; a fault if it has neither 6 nor 3 columns."""
    first, newline, _ = piece[: LONGEST_LINE + 1].partition(b"\n")
    crlf = bool(newline) and first.endswith(b"\r")
    first = first.removesuffix(b"\r") if crlf else first
    columns = len(_fields(first))
    fault = _fault(first, columns if columns in _LAYOUTS else None)
    if piece.startswith((b"\xff\xfe", b"\xfe\xff")):
        faults.add(1, "the file is UTF-16, not UTF-8")
    elif fault and (program := packed_by(piece)):
        faults.add(1, f"the file is packed by {program}; packed runs may be of gzip or zstd")
    elif fault and piece.startswith(b"{"):
        faults.add(1, "this looks like JSON; in Python, eval_kit.score takes what json.load gives")
    elif columns not in _LAYOUTS:
        faults.add(1, fault)
    return Form(columns, crlf)


def _find_faults(piece: bytes, form: Form, first_line: int, faults: Faults) -> bool:
    """Note what is wrong with each line of a piece; returns whether anything is."""
    before = faults.count
    *lines, rest = piece.split(b"\n")
    for number, line in enumerate([*lines, rest] if rest else lines, first_line):
        crlf = form.crlf and number < first_line + len(lines)
        if crlf and not line.endswith(b"\r"):
            faults.add(number, "ends unlike the first line, which ends as on Windows")
        elif what := _fault(line.removesuffix(b"\r") if crlf else line, form.columns):
            faults.add(number, what)
    return faults.count > before


def _fault(line: bytes, columns: int | None) -> str:
    """What is wrong with a line, or nothing; ``columns`` is None if the run's first line has neither 6 nor 3."""
    if len(line) > LONGEST_LINE:
        return f"the line is longer than {LONGEST_LINE:,} bytes"
    if b"\0" in line:
        return "holds a zero byte; this is not a text file"
    if b"\r" in line:
        return "holds a carriage return (Windows line ends); end all lines one way"
    if _BYTE_ORDER_MARK in line:
        return "holds a byte-order mark; save the file as plain UTF-8"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    fields = _fields(line)
    if not fields:
        return "the line is empty"
    if len(fields) != columns:
        return _wrong_columns(fields, columns)
    texts = [field for field, kind in zip(fields, _SCHEMAS[columns].values(), strict=True) if kind == pl.String()]
    if max(map(len, texts)) > LONGEST_FIELD:
        return f"has a field longer than {LONGEST_FIELD:,} bytes"
    rank = fields[3] if columns == 6 else fields[2]
    looks_like = "; it looks like a score" if columns == 3 and _NUMBER.fullmatch(rank) else ""
    if not _WHOLE_NUMBER.fullmatch(rank):
        return f"the rank {_quote(rank)} is not a whole number{looks_like}"
    if not 0 <= float(rank) <= HIGHEST_RANK:
        return f"the rank {_quote(rank)} is not between 0 and {HIGHEST_RANK:,}{looks_like}"
    if columns == 6 and not (_NUMBER.fullmatch(fields[4]) and math.isfinite(float(fields[4]))):
        return f"the score {_quote(fields[4])} is not a finite number"
    return ""


def _fields(line: bytes) -> list[bytes]:
    return list(filter(None, _BLANKS.split(line)))


def _wrong_columns(fields: list[bytes], columns: int | None) -> str:
    layout = f"{columns} ({_LAYOUTS[columns]})" if columns else f"6 ({TREC}) or 3 ({MS_MARCO})"
    what = f"{len(fields)} column{'s' * (len(fields) != 1)}, expected {layout}"
    if len(fields) == 4 and fields[1] in (b"0", b"Q0") and _WHOLE_NUMBER.fullmatch(fields[3]):
        return f"{what}; this looks like a qrels file, not a run"
    if len(fields) == 1 and any(mark in fields[0] for mark in (b",", b";", b"|")):
        return f"{what}; columns are separated by blanks or tabs"
    return what


def _quote(field: bytes) -> str:
    return repr(field.decode("utf-8", "replace")[:40])


def _blocks(path: Path, size: int, feed: Feed | None) -> Iterator[bytes]:
    """The file's bytes in blocks of about ``size``, decompressed if its first bytes say gzip or zstd.

    Raises:
        RunError: a compressed file that grows more in unpacking than any run does.
    """
    with open_file(path) as file:
        magic = file.read(4)
        file.seek(0)
        raw = _Raw(file, feed)
        if magic[:2] == b"\x1f\x8b":
            blocks = _packed_blocks(raw, size, partial(zlib.decompressobj, wbits=31), b"\0")
        elif magic == b"\x28\xb5\x2f\xfd":
            blocks = _packed_blocks(raw, size, zstandard.ZstdDecompressor().decompressobj)
        else:
            while block := raw.read(raw.to_line_end(size)):
                yield block
            return
        room = max(SMALL_BYTES, MOST_GROWTH * path.stat().st_size)
        for block in blocks:
            room -= len(block)
            if room < 0:
                raise RunError(f"{path}: unpacks to more than {MOST_GROWTH} times its size, as no run does")
            yield block


class _Raw:
    """A file's bytes as they are, fed to a digest on their way."""

    def __init__(self, file: IO[bytes], feed: Feed | None) -> None:
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
        rest = len(self._file.readline(LONGEST_LINE))
        self._file.seek(start)
        return size + rest


def _packed_blocks(raw: _Raw, size: int, new_stream: Callable[[], Any], padding: bytes = b"") -> Iterator[bytes]:
    """Unpack a little at a time, one stream after the other; gzip files may be filled up with ``padding``."""
    stream = None
    pieces, ready = [], 0
    while block := raw.read(PACKED_BYTES):
        for start in range(0, len(block), UNPACKED_TOGETHER):
            piece = block[start : start + UNPACKED_TOGETHER]
            while piece := piece if stream else piece.lstrip(padding):
                stream = stream or new_stream()
                pieces.append(stream.decompress(piece))
                ready += len(pieces[-1])
                piece = stream.unused_data
                stream = None if stream.eof else stream
            if ready >= size:
                yield b"".join(pieces)
                pieces, ready = [], 0
    yield b"".join(pieces)
    if stream is not None:
        raise EOFError


def _pieces(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Divide bytes anew, so that each piece ends with a line; the last one may be the start of an overlong line.

    Whatever follows that is left out: the piece is refused for it.
    """
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end and end == len(block) and not rest:
            yield block
        elif end:
            yield b"".join((rest, memoryview(block)[:end]))
            rest = block[end:]
        else:
            rest += block
        if len(rest) > LONGEST_LINE:
            break
    if rest:
        yield rest
