"""The strict run reader: TREC (6 columns), MS MARCO (3) or ColBERT (4) runs, plain or packed; Parquet too.

A run is read in pieces of whole lines by a fast columnar parser that accepts only what is beyond doubt. A piece
that it does not accept goes to a slow line-by-line reader, which also says what is wrong and where.
"""

import bz2
import lzma
import math
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files.faults import Faults, RunError
from eval_kit.files.ids import LONGEST_ID, QUERY_NAMES
from eval_kit.files.opening import MOST_GROWTH, SMALL_BYTES, open_file

_PIECE_BYTES = 8 << 20
"""Of text parsed at once: polars' threads have work for milliseconds, and no more than two pieces are in memory."""
_PACKED_BYTES = 128 << 10
"""Packed bytes to read at once."""
_UNPACKED_TOGETHER = 4 << 10
"""Packed bytes to unpack at once: zstd may make 32,000 bytes out of one."""
LONGEST_LINE = 64 << 10
HIGHEST_RANK = 10_000_000

TREC = "query Q0 passage rank score tag"
MS_MARCO = "query passage rank"
_LAYOUTS = {6: TREC, 4: "query passage rank score", 3: MS_MARCO}
_PLACES = {6: (0, 2, 3, 4), 4: (0, 1, 2, 3), 3: (0, 1, 2, 2)}
"""Of query, passage, rank and score among the columns."""
_SCHEMAS = {
    6: {
        "query_id": pl.String(),
        "q0": pl.String(),
        "passage_id": pl.String(),
        "rank": pl.Int64(),
        "score": pl.Float64(),
        "tag": pl.String(),
    },
    4: {"query_id": pl.String(), "passage_id": pl.String(), "rank": pl.Int64(), "score": pl.Float64()},
    3: {"query_id": pl.String(), "passage_id": pl.String(), "rank": pl.Int64()},
}
_OF_SCORES = {"query_id": pl.String(), "passage_id": pl.String(), "score": pl.Float64(), "stated_rank": pl.Int64()}
_ROWS = {
    6: _OF_SCORES,
    4: _OF_SCORES,
    3: {"query_id": pl.String(), "passage_id": pl.String(), "rank": pl.Int64(), "score": pl.Float64()},
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = re.compile(rb"[ \t]+")
_EDGE_BLANKS = re.compile(rb"^[ \t]+|[ \t]+$", re.MULTILINE)
_NO_TAG = re.compile(rb"\t +$", re.MULTILINE)
_WHOLE_NUMBER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_RANK = re.compile(rb"none|null|n/?a|nan|[+-]?inf|-+|\?", re.IGNORECASE)
"""What tools write for a rank that they do not have."""
_PARQUET = b"PAR1"
_PACKED = (
    (re.compile(rb"\x1f\x8b"), partial(zlib.decompressobj, wbits=31), b"\0"),
    # the second is a frame to skip, with which pzstd and seekable zstd begin
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), lambda: zstd().ZstdDecompressor(), b""),
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor, b""),
    (re.compile(rb"\xfd7zXZ"), lzma.LZMADecompressor, b"\0"),
)
"""How packed files begin, what unpacks a stream of theirs, and what may fill them up between streams."""
_OWN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")

type Feed = Callable[[bytes], object]


class Form(NamedTuple):
    """What the first line of a run says of all its lines.

    The columns, whether they end as on Windows, and whether tabs alone divide the columns, so that ids may hold blanks.
    """

    columns: int
    crlf: bool
    tabs: bool = False


def zstd() -> Any:
    """The module for zstd, imported for what is packed so."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def read_pieces(path: Path, piece_bytes: int = _PIECE_BYTES, feed: Feed | None = None) -> Generator[pl.DataFrame]:
    """Read a run, piece by piece, in file order.

    Comments (``#``) before its first line, as ir_metadata has them, and empty lines after its last one are left out.
    A tag may hold blanks; neither it nor the second column nor the rank of six columns is judged.

    Args:
        path: the file; ``-`` and ``/dev/fd/63`` are what comes through a pipe.
        piece_bytes: about how much text to parse at once.
        feed: takes the file's bytes as they are, compressed or not.

    Yields:
        ``query_id`` and ``passage_id`` (strings), ``score`` (finite float64; for MS MARCO runs minus the rank) and
        the rank column (int64), called ``rank`` where it decides (MS MARCO runs) and ``stated_rank`` where the score
        does (null for what is no whole number); one row per line, up to the first piece with a fault.

    Raises:
        RunError: after the whole file was read, with its first faults and how many more there are.
    """
    faults = Faults(path)
    form = Form(0, crlf=False)
    line = 1
    try:
        if _is_parquet(path):
            yield _of_parquet(path, feed)
            return
        pieces = _without_end(_pieces(_blocks(path, piece_bytes, feed)))
        first, line = _after_comments(pieces)
        if first:
            form = _form(first, line, faults)
            faults.raise_any()
        for piece, parsed in _ahead(partial(_parse, form=form), chain([first] if first else [], pieces)):
            frame = _line_by_line(piece, form, line, faults) if parsed is None else parsed
            if not faults.count:
                yield frame
            line += piece.count(b"\n") if parsed is None else parsed.height
    except EOFError as error:
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
    if _is_parquet(path):
        return ""
    first, _ = _after_comments(_pieces(_blocks(path, LONGEST_LINE, None)))
    return b" ".join(_fields(first.split(b"\n", 1)[0].removesuffix(b"\r"))[5:]).decode("utf-8", "replace")


def is_run(path: Path) -> bool:
    """Whether a file can be read, and its first line is one of a run."""
    try:
        if _is_parquet(path):
            return True
        first, _ = _after_comments(_pieces(_blocks(path, LONGEST_LINE, None)))
        form = _form(first, 1, Faults(path))
        return isinstance(_row(first.splitlines()[0], form.columns or None), tuple) if first else False
    except (EOFError, OSError, UserError):
        return False


def _is_parquet(path: Path) -> bool:
    with _open(path) as file:
        return file.read(len(_PARQUET)) == _PARQUET


def _of_parquet(path: Path, feed: Feed | None) -> pl.DataFrame:
    """The rows of a Parquet file with the columns of a dataframe, as ranx writes them."""
    with _open(path) as file:
        while feed and (block := file.read(_PIECE_BYTES)):
            feed(block)
        file.seek(0)
        try:
            frame = pl.read_parquet(file)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise RunError(f"{path}: is Parquet that cannot be read: {str(error).splitlines()[0]}") from None
    from eval_kit.runs import rows  # numpy, which text does without

    lines = rows.lines(str(path), frame).rename({"rank": "stated_rank"}, strict=False)
    return lines if "stated_rank" in lines.columns else lines.with_columns(stated_rank=pl.lit(None, pl.Int64))


def _after_comments(pieces: Iterator[bytes]) -> tuple[bytes, int]:
    """The first piece from the first line of the run on, and that line's number; no piece if there is none."""
    line, start = 1, 0
    for piece in pieces:
        piece = piece.removeprefix(_BYTE_ORDER_MARK) if line == 1 else piece
        start = 0
        while start < len(piece):
            end = piece.find(b"\n", start) + 1 or len(piece)
            text = piece[start:end].strip()
            if not (_is_comment(text) or _is_header(text)) and (text or line == 1):
                return piece[start:], line
            start, line = end, line + 1
    return b"", line


def _is_comment(line: bytes) -> bool:
    return line.startswith(b"#") and not isinstance(_row(line, 6), tuple)


def _is_header(line: bytes) -> bool:
    """Whether a line names a run's columns, and is none of a run; judgements have no rank."""
    names = line.decode("utf-8", "replace").lower().split()
    is_row = any(isinstance(_row(line, columns), tuple) for columns in _LAYOUTS)
    return names[:1] != [] and names[0] in QUERY_NAMES and "rank" in names and not is_row


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
    tabs, spaces = b"\t" in piece, b" " in piece
    if not (tabs and spaces) or form.tabs:
        frame = _parse_separated(piece, "\t" if tabs else " ", form.columns)
        if frame is not None:
            edges = pl.col("query_id", "passage_id").str.contains("^ | $").any() if tabs and spaces else pl.lit(False)
            return None if any(frame.select(edges).row(0)) or (spaces and _NO_TAG.search(piece)) else frame
    if form.tabs:
        return None
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
    if any(frame.null_count().row(0)) or frame.height < piece.count(b"\n"):
        return None
    if max(frame.select(pl.col("query_id", "passage_id").str.len_bytes().max()).row(0)) > LONGEST_ID:
        return None
    if columns == 3:
        ranks = frame.select("query_id", "passage_id", "rank", score=-pl.col("rank").cast(pl.Float64))
        return ranks if frame["rank"].is_between(0, HIGHEST_RANK).all() else None
    if not frame["score"].is_finite().all():
        return None
    return frame.select("query_id", "passage_id", "score", stated_rank="rank")


def _form(piece: bytes, line: int, faults: Faults) -> Form:
    """What the first line says; a fault if it has neither 6 nor 3 columns."""
    first, newline, _ = piece[: LONGEST_LINE + 1].partition(b"\n")
    crlf = bool(newline) and first.endswith(b"\r")
    first = first.removesuffix(b"\r") if crlf else first
    columns = 0 if _is_of_qrels(_fields(first)) else min(len(_fields(first)), 6)
    if columns not in _LAYOUTS:
        faults.add(line, str(_row(first, None)))
    return Form(columns, crlf, bool(_by_tabs(first)))


def _line_by_line(piece: bytes, form: Form, first_line: int, faults: Faults) -> pl.DataFrame:
    """The rows of a piece, and what is wrong with each other line."""
    found: list[tuple[Any, ...]] = []
    *lines, rest = piece.split(b"\n")
    for number, line in enumerate([*lines, rest] if rest else lines, first_line):
        crlf = form.crlf and number < first_line + len(lines)
        if crlf and not line.endswith(b"\r"):
            faults.add(number, "ends unlike the first line, which ends as on Windows")
            continue
        row = _row(line.removesuffix(b"\r") if crlf else line, form.columns)
        if isinstance(row, str):
            faults.add(number, row)
        else:
            found.append(row)
    return pl.DataFrame(found, _ROWS[form.columns], orient="row")


def _row(line: bytes, columns: int | None) -> tuple[Any, ...] | str:
    """The row of a line, as :data:`_ROWS`, or what is wrong with it.

    ``columns`` is None if the run's first line has neither 6 nor 3.
    """
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
    if columns is None or (len(fields) != columns and not len(fields) > columns == 6):
        return _wrong_columns(fields, columns)
    query, passage, rank, score = map(fields.__getitem__, _PLACES[columns])
    if max(len(query), len(passage)) > LONGEST_ID:
        return f"has a field longer than {LONGEST_ID:,} bytes"
    ids = query.decode(), passage.decode()
    whole = int(rank) if len(rank) <= 18 and _WHOLE_NUMBER.fullmatch(rank) else None
    if columns == 3:
        if not _WHOLE_NUMBER.fullmatch(rank):
            return f"the rank {_quote(rank)} is not a whole number"
        if not 0 <= float(rank) <= HIGHEST_RANK:
            return f"the rank {_quote(rank)} is not between 0 and {HIGHEST_RANK:,}"
        return *ids, int(float(rank)), -float(rank)
    if not (_NUMBER.fullmatch(score) and math.isfinite(float(score))):
        return f"the score {_quote(score)} is not a finite number"
    if columns == 4:
        return (*ids, float(score), whole) if whole is not None else f"the rank {_quote(rank)} is not a whole number"
    no_rank = not (_NUMBER.fullmatch(rank) or _NO_RANK.fullmatch(rank))
    if no_rank + (len(fields) > columns) + bool(_NUMBER.fullmatch(fields[5])) > 1:
        return f"{_wrong_columns(fields, columns)}; ids with blanks need tabs between the columns"
    return *ids, float(score), whole


def _fields(line: bytes) -> list[bytes]:
    """The columns of a line, divided by tabs alone or by blanks too; a tag with blanks makes more than 6."""
    return _by_tabs(line) or list(filter(None, _BLANKS.split(line)))


def _by_tabs(line: bytes) -> list[bytes]:
    """The 6 or 3 columns that tabs alone make, so that ids may hold blanks; empty where they make none."""
    fields = [field.strip(b" ") for field in line.strip(b" \t").split(b"\t")]
    is_whole = len(fields) == 6 or (len(fields) == 3 and _WHOLE_NUMBER.fullmatch(fields[2]))
    return fields if is_whole and all(fields) else []


def _wrong_columns(fields: list[bytes], columns: int | None) -> str:
    layout = f"{columns} ({_LAYOUTS[columns]})" if columns else f"6 ({TREC}) or 3 ({MS_MARCO})"
    what = f"{len(fields)} column{'s' * (len(fields) != 1)}, expected {layout}"
    if _is_of_qrels(fields):  # numbers alone would pass for four columns, at the wrong passages
        return f"{what}; this looks like a qrels file, not a run"
    return what


def _is_of_qrels(fields: list[bytes]) -> bool:
    return len(fields) == 4 and fields[1] in (b"0", b"Q0") and bool(_WHOLE_NUMBER.fullmatch(fields[3]))


def _quote(field: bytes) -> str:
    return repr(field.decode("utf-8", "replace")[:40])


def _open(path: Path) -> IO[bytes]:
    """The file; what comes through a pipe that this process was given is kept, as a run may be read twice.

    Raises:
        UserError: as :func:`eval_kit.files.opening.open_file`, which refuses other pipes, and devices.
    """
    source = Path("/dev/stdin") if str(path) == "-" else path
    if str(source).startswith(_OWN_PIPES) and source.exists() and not stat.S_ISCHR(source.stat().st_mode):
        return Path(_kept(str(source)).name).open("rb")
    return open_file(source)


@cache
def _kept(source: str) -> Any:
    """A temporary file, until the end of the process, of what comes through a pipe."""
    kept = tempfile.NamedTemporaryFile()  # noqa: SIM115
    with Path(source).open("rb") as pipe:
        shutil.copyfileobj(pipe, kept)
    kept.flush()
    return kept


def _blocks(path: Path, size: int, feed: Feed | None) -> Iterator[bytes]:
    """The file's bytes in blocks of about ``size``, unpacked if its first bytes say how.

    Raises:
        RunError: a compressed file that grows more in unpacking than any run does.
    """
    with _open(path) as file:
        magic = file.read(10)
        file.seek(0)
        raw = _Raw(file, feed)
        packing = next((each[1:] for each in _PACKED if each[0].match(magic)), None)
        if packing is None:
            while block := raw.read(raw.to_line_end(size)):
                yield block
            return
        room = max(SMALL_BYTES, MOST_GROWTH * os.fstat(file.fileno()).st_size)
        for block in _packed_blocks(raw, size, *packing):
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
    while block := raw.read(_PACKED_BYTES):
        for start in range(0, len(block), _UNPACKED_TOGETHER):
            piece = block[start : start + _UNPACKED_TOGETHER]
            while piece := piece if stream else piece.lstrip(padding):
                stream = stream or new_stream()
                try:
                    pieces.append(stream.decompress(piece))
                except Exception as error:  # each format has a kind of its own
                    raise EOFError(str(error)) from error
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


def _without_end(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces without the empty lines at the end of the file."""
    held = b""
    for piece in pieces:
        filled = len(piece.rstrip(b" \t\r\n")) if piece[-2:].isspace() else len(piece)
        if not filled and len(held) < LONGEST_LINE:
            held += piece
            continue
        end = piece.find(b"\n", filled) + 1 or len(piece)
        yield held + piece[:end]
        held = piece[end:]
