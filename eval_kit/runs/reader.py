"""The strict run reader: TREC (6 columns), MS MARCO (3) or ColBERT (4) runs, plain or packed; other tables too.

A run is read in pieces of whole lines by a fast columnar parser that accepts only what is beyond doubt. A piece
that it does not accept goes to a slow line-by-line reader, which also says what is wrong and where. CSV and JSON lines
are for the latter alone, as lines of a run.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from eval_kit.errors import UserError, choices, parameter
from eval_kit.files.faults import Faults, RunError
from eval_kit.files.ids import GRADE_NAMES, LONGEST_ID, PASSAGE_NAMES, QUERY_NAMES, RUN_NAMES
from eval_kit.files.numbers import NUMBER, WHOLE_NUMBER, finite_number
from eval_kit.files.packed import Feed, blocks
from eval_kit.files.records import (
    PARQUET,
    Layout,
    by_blanks,
    by_tabs,
    is_parquet,
    is_table,
    plain_name,
    read_parquet,
    records,
)
from eval_kit.sentences import counted

_PIECE_BYTES = 8 << 20
"""Of text parsed at once: polars' threads have work for milliseconds, and no more than two pieces are in memory."""
LONGEST_LINE = 64 << 10
HIGHEST_RANK = 10_000_000
_MOST_TAGS = 4

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
_NO_RANK = re.compile(r"none|null|n/?a|nan|[+-]?inf|-+|\?", re.IGNORECASE)
"""What tools write for a rank that they do not have."""
_TABLE = Layout(
    names=(QUERY_NAMES, PASSAGE_NAMES),
    places=_PLACES,
    expected="a query's id, a passage's, and a score or rank",
    is_row=lambda fields: bool(NUMBER.fullmatch(fields[_PLACES[len(fields)][-1]])) and not _is_of_qrels(fields),
    by_blanks=True,
)
"""Runs by commas or names."""
_OF_BEIR = ["query-id", "corpus-id", "score"]
"""The header of BEIR's judgements."""
_JUDGEMENTS = f"These look like judgements, which {parameter('qrels')} takes"


class Form(NamedTuple):
    """What the first line of a run says of all its lines.

    The columns, whether they end as on Windows, and whether tabs alone divide the columns, so that ids may hold blanks.
    """

    columns: int
    crlf: bool
    tabs: bool = False


def read_pieces(
    path: Path, piece_bytes: int = _PIECE_BYTES, feed: Feed | None = None, tags: list[str] | None = None
) -> Generator[pl.DataFrame]:
    """Read a run, piece by piece, in file order; its form is that of its first line, and it is opened once.

    Comments (``#``) before its first line, as ir_metadata has them, and empty lines after its last one are left out.
    A tag may hold blanks; neither it nor the second column nor the rank of six columns is judged.

    Args:
        path: the file; ``-`` and ``/dev/fd/63`` are what comes through a pipe.
        piece_bytes: about how much text to parse at once.
        feed: takes the file's bytes as they are, compressed or not.
        tags: takes the sixth column: of the first line in full, then the first few that differ.

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
        raw = blocks(path, piece_bytes, feed)
        start = next(raw, b"")
        pieces = _without_end(_pieces(chain([start], raw)))
        of_parquet = start.startswith(PARQUET)
        first, line = (b"", 1) if of_parquet else _after_comments(path, pieces)
        if of_parquet or _is_table_with(path, _line(first)):
            for _ in raw if feed else ():  # all of its bytes
                pass
            yield _of_parquet(path) if of_parquet else _of_records(path)
            return
        if first:
            if tags is not None:
                tags.append(" ".join(_fields(_line(first))[5:]))
            form = _form(first, line, faults)
            faults.raise_any()
        for piece, parsed in _ahead(partial(_parse, form=form), chain([first] if first else [], pieces)):
            frame = _line_by_line(piece, form, line, faults) if parsed is None else parsed
            if "tag" in frame.columns:
                tag = frame.drop_in_place("tag")
                if tags is not None and len(tags) < _MOST_TAGS and (tag != (tags[1:] or [""])[0]).any():
                    tags += [each for each in tag.unique(maintain_order=True)[:_MOST_TAGS] if each not in tags[1:]]
            if not faults.count:
                yield frame
            line += piece.count(b"\n") if parsed is None else parsed.height
    except EOFError as error:
        faults.add(line, str(error))
    except OSError as error:
        raise RunError(f"Could not read {path}: {error.strerror or error}") from error
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


def is_run(path: Path) -> bool:
    """Whether a file can be read, and its first line is one of a run."""
    try:
        if is_parquet(path):
            return True
        first = _line(_after_comments(path, _pieces(blocks(path, LONGEST_LINE)))[0])
        if _is_table_with(path, first):
            return not _of_records(path).is_empty()
        form = _form(first.encode(), 1, faults := Faults(path))
        return not faults.count and isinstance(_row(first.encode(), form.columns or None), tuple)
    except (EOFError, OSError, UserError):
        return False


def _line(piece: bytes) -> str:
    """The first line of a piece."""
    return piece[: LONGEST_LINE + 1].split(b"\n", 1)[0].removesuffix(b"\r").decode("utf-8", "replace")


def _is_table_with(path: Path, first: str) -> bool:
    """Whether a file with this first line is CSV, JSON lines, or tabs under names."""
    return is_table(path, first, _TABLE) or _names_scores(first)


def _of_parquet(path: Path) -> pl.DataFrame:
    """The rows of a Parquet file with the columns of a dataframe, as ranx writes them."""
    from eval_kit.runs import rows  # numpy, which text does without

    frame = read_parquet(path)
    names = set(map(plain_name, frame.columns))
    if "rank" in names and "score" not in names:
        return _of_records(path)
    for name in set(RUN_NAMES).intersection(frame.columns):
        _check_one(path, frame[name].unique().drop_nulls())
    lines = rows.lines(str(path), frame).rename({"rank": "stated_rank"}, strict=False)
    return lines if "stated_rank" in lines.columns else lines.with_columns(stated_rank=pl.lit(None, pl.Int64))


def _of_records(path: Path) -> pl.DataFrame:
    """The rows of CSV or of JSON lines.

    Raises:
        RunError: what is wrong with them, as in the lines of a run.
    """
    faults, found, columns, names = Faults(path), list[tuple[Any, ...]](), 0, set[tuple[str, str]]()
    for number, record in records(path, _TABLE, faults):
        fields = _as_columns(path, record) if isinstance(record, dict) else record
        if isinstance(record, dict):
            names.update(
                (plain_name(name), str(value)) for name, value in record.items() if plain_name(name) in RUN_NAMES
            )
        columns = columns or (len(fields) if len(fields) in _LAYOUTS else 6)
        row = _row("\t".join(fields).encode(), columns)
        if isinstance(row, str):
            is_header = isinstance(record, list) and not found
            faults.add(number, f"{row}. A header names the columns, such as query,doc,score" if is_header else row)
            if is_header:
                break
        else:
            found.append(row)
    faults.raise_any()
    for column in RUN_NAMES:
        _check_one(path, [run for name, run in sorted(names) if name == column])
    return pl.DataFrame(found, _ROWS[columns or 6], orient="row")


def _check_one(path: Path, runs: Iterable[object]) -> None:
    """Refuse a table of several runs, whose passages would be ranked together."""
    if len(names := sorted(map(str, runs))) > 1:
        raise RunError(f"{path} has several runs: {choices(names)}", do="Write each into a file of its own")


def _as_columns(path: Path, record: dict[str, Any]) -> list[str]:
    """The columns of a run; empty texts for values that are missing, or none of ids and numbers."""
    record = {plain_name(name): value for name, value in record.items()}
    if record.keys().isdisjoint(("score", "rank")):
        why = "" if record.keys().isdisjoint(GRADE_NAMES) else _JUDGEMENTS
        what = f"{path} is not a run, as its columns are {choices(record)}"
        raise RunError(what, why, "Name a score or a rank, and the ids, such as query,doc,score")
    ids = [next((record[name] for name in names if name in record), None) for names in _TABLE.names]
    query, passage = (str(each) if isinstance(each, str | int) else "" for each in ids)
    rank = "-" if record.get("rank") in (None, "") else str(record["rank"])
    return [query, "Q0", passage, rank, str(record["score"]), "t"] if "score" in record else [query, passage, rank]


def _after_comments(path: Path, pieces: Iterator[bytes]) -> tuple[bytes, int]:
    """The first piece from the first line of the run on, and that line's number; no piece if there is none."""
    line, start = 1, 0
    for piece in pieces:
        piece = piece.removeprefix(_BYTE_ORDER_MARK) if line == 1 else piece
        start = 0
        while start < len(piece):
            end = piece.find(b"\n", start) + 1 or len(piece)
            text = piece[start:end].decode("utf-8", "replace").strip(" \t\r\n")
            if not (_is_comment(path, text) or _is_header(text)) and (text or line == 1):
                return piece[start:], line
            start, line = end, line + 1
    return b"", line


def _is_comment(path: Path, line: str) -> bool:
    is_row = isinstance(_row(line.encode(), 6), tuple) or by_tabs(line, _is_whole) or is_table(path, line, _TABLE)
    return line.startswith("#") and not is_row


def _names_scores(line: str) -> bool:
    """Whether a line by tabs names a run's ids and scores, and is not the header of BEIR's judgements."""
    names = list(map(plain_name, line.split("\t")))
    return "score" in names and names != _OF_BEIR and all(not set(known).isdisjoint(names) for known in _TABLE.names)


def _is_header(line: str) -> bool:
    """Whether a line names a run's columns, and is none of a run; judgements have no rank."""
    names = by_blanks(line.lower())
    is_row = any(isinstance(_row(line.encode(), columns), tuple) for columns in _LAYOUTS)
    return names[:1] != [] and names[0] in QUERY_NAMES and "rank" in names and not is_row


def _parse(piece: bytes, form: Form) -> pl.DataFrame | None:
    """The rows of a piece, or None if any of them is in doubt."""
    if _has_overlong_line(piece):
        return None
    if form.crlf:
        lines = piece.replace(b"\r\n", b"\n")
        if len(piece) - len(lines) < lines.count(b"\n"):
            return None
        piece = lines
    if b"\r" in piece or b"\0" in piece or (_BYTE_ORDER_MARK[:1] in piece and _BYTE_ORDER_MARK in piece):
        return None  # searching for the first byte alone comes first: it is many times faster
    mixed = b"\t" in piece and b" " in piece
    if mixed and form.tabs:  # blanks stand in columns, or beside tabs
        frame = _parse_separated(piece, "\t", form.columns, mixed)
        return frame if frame is not None else _parse_texts(piece, "\t", form.columns, mixed)
    if not mixed:
        separator = "\t" if b"\t" in piece else " "
        frame = _parse_separated(piece, separator, form.columns)
        if frame is None and 2 * separator.encode() not in piece:
            frame = _parse_texts(piece, separator, form.columns, mixed)
        if frame is not None:
            return frame
    folded = _folded(piece)
    frame = _parse_separated(folded, " ", form.columns)
    return frame if frame is not None else _parse_texts(folded, " ", form.columns, mixed)


def _folded(piece: bytes) -> bytes:
    """The lines with one blank between columns, and none at their edges, whatever blanks and tabs divide them."""
    import numpy as np  # which plain runs do without

    letters = np.frombuffer(piece, np.uint8)
    blank = (letters == ord(" ")) | (letters == ord("\t"))
    is_before_edge = np.append(blank[1:] | (letters[1:] == ord("\n")), True)
    folded = letters[~(blank & is_before_edge)]
    folded[folded == ord("\t")] = ord(" ")
    return bytes(folded).replace(b"\n ", b"\n").removeprefix(b" ")


def _has_overlong_line(piece: bytes) -> bool:
    """Whether a line has more than :data:`LONGEST_LINE` bytes; looks at one line end in each so many bytes."""
    start = 0
    while len(piece) - start > LONGEST_LINE:
        end = piece.rfind(b"\n", start, start + LONGEST_LINE + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def _parse_separated(piece: bytes, separator: str, columns: int, mixed: bool = False) -> pl.DataFrame | None:
    """The rows of a piece of whole ranks, with one separator between columns; ``mixed``: blanks may stand in these."""
    frame = _read(piece, separator, _SCHEMAS[columns])
    ids, tag = pl.col("query_id", "passage_id"), pl.col("^tag$")
    padded = pl.any_horizontal(ids.str.contains("^ | $").any(), tag.str.contains("^ +$").any())
    if frame is None or (mixed and frame.select(padded).item()):
        return None
    return _rows(frame, columns)


def _parse_texts(piece: bytes, separator: str, columns: int, mixed: bool) -> pl.DataFrame | None:
    """The rows of a piece of any ranks, with blanks in tags or beside tabs.

    Where tabs and blanks are mixed, lines that each of them might divide are in doubt.
    """
    frame = _read(piece, separator, dict.fromkeys([*_SCHEMAS[columns], "more"], pl.String()))
    if frame is None or (separator == "\t" and b"\t\t" in piece):
        return None
    more = frame.drop_in_place("more").is_not_null()
    if more.any() and (mixed or columns < 6):
        return None
    if mixed and separator == "\t":
        frame = frame.with_columns(pl.all().str.strip_chars(" "))
        if frame.select(pl.any_horizontal((pl.all() == "").any())).item():
            return None
    if columns == 6:
        no_rank = ~(_is("rank", NUMBER) | _is("rank", _NO_RANK))
        oddities = no_rank.cast(pl.Int8) + more + (mixed and separator == " ")
        odd = frame.select("tag", oddities=oddities).filter(pl.col("oddities") > 0)
        if odd.select((pl.col("oddities") + _is("tag", NUMBER) > 1).any()).item():
            return None
    is_whole = _is("rank", WHOLE_NUMBER) & (pl.col("rank").str.len_bytes() <= 18)
    numbers = {"rank": pl.when(is_whole).then("rank").cast(pl.Int64)}
    if columns > 3:
        numbers["score"] = pl.col("score").cast(pl.Float64, strict=False)
    return _rows(frame.with_columns(**numbers), columns)


def _is(column: str, pattern: re.Pattern[str]) -> pl.Expr:
    """Whether a pattern of ASCII letters is all of a text."""
    return pl.col(column).str.contains(f"^(?{'i' * bool(pattern.flags & re.IGNORECASE)}:{pattern.pattern})$")


def _read(piece: bytes, separator: str, schema: dict[str, Any]) -> pl.DataFrame | None:
    """A row for each line, or None; columns after those of the schema, if it ends with ``more``, are left out."""
    header = separator.join(schema).encode() + b"\n"  # polars would take a piece that begins like zlib or zstd for it
    more = "more" in schema
    try:
        frame = pl.read_csv(
            header + piece, separator=separator, schema=schema, quote_char=None, truncate_ragged_lines=more
        )
    except pl.exceptions.PolarsError:
        return None
    lacking = frame.drop("more", strict=False).null_count().row(0)
    return None if any(lacking) or frame.height < piece.count(b"\n") else frame


def _rows(frame: pl.DataFrame, columns: int) -> pl.DataFrame | None:
    """The rows of lines whose ids and numbers are all there and within bounds."""
    if any(frame.drop("rank" if columns == 6 else []).null_count().row(0)):
        return None
    if max(frame.select(pl.col("query_id", "passage_id").str.len_bytes().max()).row(0)) > LONGEST_ID:
        return None
    if columns == 3:
        ranks = frame.select("query_id", "passage_id", "rank", score=-pl.col("rank").cast(pl.Float64))
        return ranks if frame["rank"].is_between(0, HIGHEST_RANK).all() else None
    if not frame["score"].is_finite().all():
        return None
    return frame.select("query_id", "passage_id", "score", pl.col("^tag$"), stated_rank="rank")


def _form(piece: bytes, line: int, faults: Faults) -> Form:
    """What the first line says; a fault if it has neither 6 nor 3 columns."""
    first, newline, _ = piece[: LONGEST_LINE + 1].partition(b"\n")
    crlf = bool(newline) and first.endswith(b"\r")
    first = first.removesuffix(b"\r") if crlf else first
    text = first.decode("utf-8", "replace")
    columns = 0 if _is_of_qrels(_fields(text)) else min(len(_fields(text)), 6)
    if columns not in _LAYOUTS:
        faults.add(line, str(_row(first, None)))
    return Form(columns, crlf, bool(by_tabs(text, _is_whole)))


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
        return "the line contains a zero byte, so this is not a text file"
    if b"\r" in line:
        return "the line contains a carriage return, as Windows ends lines. End all lines one way"
    if _BYTE_ORDER_MARK in line:
        return "the line contains a byte-order mark. Save the file as plain UTF-8"
    try:
        fields = _fields(line.decode("utf-8"))
    except UnicodeDecodeError:
        return "the line is not UTF-8 text"
    if not fields:
        return "the line is empty"
    if columns is None or (len(fields) != columns and not len(fields) > columns == 6):
        return _wrong_columns(fields, columns)
    query, passage, rank, score = map(fields.__getitem__, _PLACES[columns])
    ids = query, passage
    if max(len(each.encode()) for each in ids) > LONGEST_ID:
        return f"a field is longer than {LONGEST_ID:,} bytes"
    whole = int(rank) if len(rank) <= 18 and WHOLE_NUMBER.fullmatch(rank) else None
    if columns == 3:
        if not WHOLE_NUMBER.fullmatch(rank):
            return f"the rank {_quote(rank)} is not a whole number"
        if not 0 <= float(rank) <= HIGHEST_RANK:
            return f"the rank {_quote(rank)} is not between 0 and {HIGHEST_RANK:,}"
        return *ids, int(float(rank)), -float(rank)
    value = finite_number(score)
    if value is None:
        return f"the score {_quote(score)} is not a finite number"
    if columns == 4:
        return (*ids, value, whole) if whole is not None else f"the rank {_quote(rank)} is not a whole number"
    no_rank = not (NUMBER.fullmatch(rank) or _NO_RANK.fullmatch(rank))
    if no_rank + (len(fields) > columns) + bool(NUMBER.fullmatch(fields[5])) > 1:
        return f"{_wrong_columns(fields, columns)}. Ids with blanks need tabs between the columns"
    return *ids, value, whole


def _fields(line: str) -> list[str]:
    """The columns of a line, divided by tabs alone or by blanks too; a tag with blanks makes more than 6."""
    return by_tabs(line, _is_whole) or by_blanks(line)


def _is_whole(fields: Sequence[str]) -> bool:
    """Whether columns by tabs alone are the 6 or 3 of a run."""
    return len(fields) == 6 or (len(fields) == 3 and bool(WHOLE_NUMBER.fullmatch(fields[2])))


def _wrong_columns(fields: Sequence[str], columns: int | None) -> str:
    layout = f"{columns} ({_LAYOUTS[columns]})" if columns else f"6 ({TREC}) or 3 ({MS_MARCO})"
    what = f"{counted(len(fields), 'column')}, expected {layout}"
    # numbers alone would pass for four columns, at the wrong passages
    return f"{what}. {_JUDGEMENTS}" if _is_of_qrels(fields) else what


def _is_of_qrels(fields: Sequence[str]) -> bool:
    """Whether columns are TREC's judgements, or name judgements."""
    of_trec = len(fields) == 4 and fields[1] in ("0", "Q0") and bool(WHOLE_NUMBER.fullmatch(fields[3]))
    names = [field.lower() for field in fields]
    return of_trec or names == _OF_BEIR or (names[:1] != [] and names[0] in QUERY_NAMES and names[-1] in GRADE_NAMES)


def _quote(field: str) -> str:
    return repr(field[:40])


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
