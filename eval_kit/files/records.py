"""The rows of a file in any of the forms that people have them in, packed or not, through a pipe or not.

A row is one line: columns separated by tabs or blanks, commas (CSV) or the fields of a JSON object; or it is one of a
Parquet file. Columns have names (in a header, a JSON object, a Parquet file), or their places say what they are.
"""

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError, first_line
from eval_kit.files.endings import PACKED_ENDINGS
from eval_kit.files.faults import Faults
from eval_kit.files.ids import QUERY_NAMES
from eval_kit.files.opening import open_file
from eval_kit.files.packed import blocks, check_rows, room_of
from eval_kit.files.strict_json import decode
from eval_kit.files.text import read_lines
from eval_kit.sentences import counted

QUERY_IDS = (*QUERY_NAMES[:-2], "id", "_id", *QUERY_NAMES[-2:])
"""What files call the id of a query; of several names that are there, the first counts."""
_OBJECT = re.compile(r'\s*\{\s*["}]')
PARQUET = b"PAR1"
_BLOCK_BYTES = 8 << 20

type Record = list[Any] | dict[str, Any]
"""The values of a row by place, or by name."""


@dataclass(frozen=True)
class Layout:
    """What the rows of one kind of file hold.

    Attributes:
        names: of each column that is read, what files call it.
        places: where these are, by the number of columns of a file that names none.
        expected: a row, in words.
        is_row: whether so many columns are surely a row: a comment (``#``) is none.
        is_header: whether columns name columns, though perhaps not by these names.
        by_blanks: whether blanks divide columns where tabs alone do not.
        number: the column that may hold a number with a point.
        optional: columns that a file may lack, whose texts are empty then; they may be true or false.
        rivals: names of which a file may have one alone, as nobody knows which is meant.
    """

    names: Sequence[Sequence[str]]
    places: Mapping[int, Sequence[int | None]]
    expected: str
    is_row: Callable[[Sequence[str]], bool] = lambda fields: True
    is_header: Callable[[Sequence[str]], bool] = lambda fields: plain_name(fields[0]) in QUERY_IDS
    by_blanks: bool = False
    number: int | None = None
    optional: Collection[int] = ()
    rivals: Collection[str] = ()

    def divide(self, line: str) -> list[str]:
        """The columns of a line."""
        if not self.by_blanks:
            return line.split("\t")
        return by_tabs(line, self._is_whole) or by_blanks(line)

    def _is_whole(self, fields: Sequence[str]) -> bool:
        return len(fields) in self.places

    def _is_row(self, fields: Sequence[str]) -> bool:
        return len(fields) in self.places and self.is_row(fields)

    def _is_header(self, fields: Sequence[str]) -> bool:
        return (len(fields) > 1 or 1 in self.places) and (bool(_columns(self, fields)) or self.is_header(fields))


def by_tabs(line: str, is_whole: Callable[[list[str]], bool]) -> list[str]:
    """The columns that tabs alone make, so that ids may hold blanks; empty where these are not all of a row."""
    if "\t" not in line:
        return []
    fields = [field.strip(" ") for field in line.strip(" \t").split("\t")]
    return fields if all(fields) and is_whole(fields) else []


def by_blanks(line: str) -> list[str]:
    """The columns that ASCII blanks and tabs make; no other blank divides any, as in trec_eval."""
    return [field for field in line.replace("\t", " ").split(" ") if field]


def rows(path: Path, layout: Layout, faults: Faults) -> Iterator[tuple[int, list[str]]]:
    """The texts of a layout's columns in each row, with the row's line (in Parquet, its number).

    ``faults`` takes what is wrong with rows, which are left out.
    """
    count = 0
    names: list[str] = []
    where: Sequence[Any] | None = None
    for number, record in records(path, layout, faults):
        if isinstance(record, dict):
            if names != (names := list(record)):
                where = _columns(layout, names)
        else:
            count = count or len(record)
            where = layout.places.get(count) if len(record) == count else None
        if where is None:
            faults.add(number, f"expected {layout.expected}, found {counted(len(record), 'column')}")
            continue
        values = ["" if at is None else record[at] for at in where]
        texts = values if isinstance(record, list) else _texts(values, layout)
        if any(text == "" != value for text, value in zip(texts, values, strict=True)):
            faults.add(number, f"expected {layout.expected}: texts, and numbers without a point")
        else:
            yield number, texts


def columns(path: Path, layout: Layout) -> pl.DataFrame | None:
    """The texts of :func:`rows` as columns ``0``, ``1``, …; None where any line is in doubt: thirty times as fast."""
    if is_parquet(path):
        return None
    read = []
    try:
        for block in blocks(path, _BLOCK_BYTES):
            if b"\0" in block or (len(block) >= _BLOCK_BYTES and b"\n" not in block):
                return None  # before gigabytes of it are read
            read.append(block)
    except EOFError:
        return None
    text = b"".join(read).removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").rstrip(b"\n")
    first = text.partition(b"\n")[0].decode("utf-8", "replace")
    if not first or first.startswith("#") or _is_json(path, first):
        return None
    divider, tabs = _divider(path, first, layout), b"\t" in text
    mixed = not divider and layout.by_blanks and tabs and b" " in text
    if mixed or (divider and b'"' in text) or any(odd in text for odd in (b"\r", BOM_UTF8)):
        return None
    separator = divider or ("\t" if tabs or not layout.by_blanks else " ")
    names = first.split(separator)
    header = layout._is_header(names)
    where = (_columns(layout, names) if header else None) or layout.places.get(len(names))
    if where is None or (header and len(set(names)) < len(names)):
        return None
    schema = dict.fromkeys(map(str, range(len(names))), pl.String())
    text = text.partition(b"\n")[2] if header else text
    start = separator.join(schema).encode() + b"\n"
    try:
        frame = pl.read_csv(start + text, separator=separator, schema=schema, quote_char=None)
    except pl.exceptions.PolarsError:
        return None
    if any(frame.null_count().row(0)) or frame.height < text.count(b"\n") + bool(text):
        return None
    places = [names.index(at) if isinstance(at, str) else at for at in where]
    texts = (pl.lit("") if place is None else pl.nth(place) for place in places)
    return frame.select(text.alias(str(number)) for number, text in enumerate(texts))


def records(path: Path, layout: Layout, faults: Faults) -> Iterator[tuple[int, Record]]:
    """The rows of a file, by name where it names its columns; ``faults`` takes the lines that are no JSON objects."""
    if is_parquet(path):
        frame = read_parquet(path)
        by_name = _columns(layout, frame.columns) is not None or frame.width not in layout.places
        yield from enumerate(frame.iter_rows(named=True) if by_name else map(_texts, frame.iter_rows()), 1)
        return
    lines = _after_comments(path, layout)
    start = next(lines, None)
    if start is None:
        return
    first, lines = start[1], chain([start], lines)
    if _is_json(path, first):
        yield from _objects(lines, layout, faults)
        return
    divided: Iterable[tuple[int, list[str]]] = ((number, layout.divide(line)) for number, line in lines)
    if divider := _divider(path, first, layout):
        divided = _of_csv(path, lines, divider)
    elif len(names := first.split("\t")) not in layout.places and layout._is_header(names):
        divided = ((number, line.split("\t")) for number, line in lines)
    names = []
    for number, fields in divided:
        if not names and number == start[0] and layout._is_header(fields):
            names = fields
            if len(set(names)) < len(names):
                raise UserError(f"{path}:{number}: two columns have one name")
            if _columns(layout, names) is None and len(names) in layout.places:
                names = []  # they say nothing to us: their places do
            continue
        if not names:
            yield number, fields
        elif len(fields) != len(names):
            faults.add(number, f"{len(fields)} columns, the header has {len(names)}")
        else:
            yield number, dict(zip(names, fields, strict=True))


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet does."""
    with open_file(path) as file:
        return file.read(len(PARQUET)) == PARQUET


def read_parquet(path: Path) -> pl.DataFrame:
    """The table in a Parquet file."""
    with open_file(path) as file:
        try:
            check_rows(path, pl.scan_parquet(file).select(pl.len()).collect().item(), room_of(file))
            return pl.read_parquet(file)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise UserError(f"Could not read {path} as Parquet: {first_line(error)}") from None


def is_table(path: Path, first: str, layout: Layout) -> bool:
    """Whether a file with this first line is JSON lines or CSV."""
    return _is_json(path, first) or bool(_divider(path, first, layout))


def _is_json(path: Path, first: str) -> bool:
    return bool(_OBJECT.match(first)) or _ending(path) in (".jsonl", ".ndjson")


def _divider(path: Path, first: str, layout: Layout) -> str:
    """What divides the columns of CSV: commas, by the file's name, or as the first line holds neither tabs nor blanks;
    semicolons, as sheets write them where numbers have commas, under a header; empty where the file is none.
    """
    by_name = _ending(path) == ".csv"
    if "\t" in first or not ("," in first or ";" in first or (by_name and 1 in layout.places)):
        return ""
    try:
        if bool(_columns(layout, named := next(csv.reader([first], delimiter=";")))) and len(named) > 1:
            return ";"
        fields = next(csv.reader([first]))
    except csv.Error:  # a carriage return in the line, or a field longer than any
        return ""
    is_csv = by_name or layout._is_header(fields) or (" " not in first and layout._is_row(fields))
    return "," * (is_csv and (len(fields) > 1 or (by_name and 1 in layout.places)))


def _ending(path: Path) -> str:
    name = path.name.lower()
    for packed in PACKED_ENDINGS:
        name = name.removesuffix(packed)
    return Path(name).suffix


def _after_comments(path: Path, layout: Layout) -> Iterator[tuple[int, str]]:
    """The lines from the first one on that is neither a comment (``#``) nor empty."""
    lines = read_lines(path)
    for number, line in lines:
        divider = _divider(path, line, layout)
        fields = next(csv.reader([line], delimiter=divider)) if divider else layout.divide(line)
        if line.strip() and (layout._is_row(fields) or not line.startswith("#")):
            yield number, line
            yield from lines


def _objects(lines: Iterable[tuple[int, str]], layout: Layout, faults: Faults) -> Iterator[tuple[int, Record]]:
    for number, line in lines:
        try:
            entry, why = decode(line), ""
        except ValueError as error:
            entry, why = None, f"; {error}"
        if isinstance(entry, dict):
            yield number, entry
        else:
            faults.add(number, f"expected a JSON object with {layout.expected}{why}")


def _of_csv(path: Path, lines: Iterable[tuple[int, str]], divider: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of CSV, whose quoted texts may go over several lines, each with its first line."""
    first, lines = 0, iter(lines)

    def texts() -> Iterator[str]:
        nonlocal first
        for number, line in lines:
            first = first or number
            yield f"{line}\n"

    try:
        for fields in csv.reader(texts(), strict=True, delimiter=divider):
            yield first, fields
            first = 0
    except csv.Error as error:
        raise UserError(f"{path}:{first}: {error}") from None


def _columns(layout: Layout, present: Iterable[str]) -> list[str | None] | None:
    """Which of the names that are there, in any case, a layout's columns have; None if one has none but may not."""
    there = {plain_name(name): name for name in present}
    if len(rivals := [there[name] for name in layout.rivals if name in there]) > 1:
        raise UserError(f"The columns {' and '.join(rivals)} may both be meant", do="Keep one of them")
    found: list[str | None] = []
    for number, names in enumerate(layout.names):
        name = next((there[name] for name in names if name in there and there[name] not in found), None)
        if name is None and number not in layout.optional:
            return None
        found.append(name)
    return found


def plain_name(name: str) -> str:
    """A column's name in small letters, without the sign of a comment and with ``_`` for blanks."""
    return name.strip().lstrip("#").lower().replace(" ", "_")


def _texts(values: Iterable[Any], layout: Layout | None = None) -> list[str]:
    """The texts of ids, of texts and of numbers, as a layout lets them have points or be true or false; else ""."""
    number, optional = (layout.number, layout.optional) if layout else (None, ())
    texts = []
    for place, value in enumerate(values):
        is_number = isinstance(value, int | float if place == number else int)
        is_number = is_number and (place in optional or not isinstance(value, bool))
        texts.append(str(value) if isinstance(value, str) or is_number else "")
    return texts
