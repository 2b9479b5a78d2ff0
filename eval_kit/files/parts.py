"""The part of each query, from a file of ids and parts or from a field of BEIR's queries."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError, choices
from eval_kit.files import atomic
from eval_kit.files.faults import Faults
from eval_kit.files.opening import is_input
from eval_kit.files.records import QUERY_IDS, Layout, plain_name, records, rows
from eval_kit.files.text import read_lines
from eval_kit.sentences import counted

SCHEMA = {"query_id": pl.String(), "part": pl.String()}
_PARTS = Layout(
    names=(QUERY_IDS, ("part", "cluster", "label", "group")),
    places={2: (0, 1)},
    expected="a query id and a part, with a tab or comma between",
    number=1,
)


def file_and_column(text: str) -> tuple[Path, str | None] | None:
    """The file that a text names, as ``FILE`` or ``FILE:COLUMN``, and the column; None where there is no such file."""
    if is_input(Path(text)):
        return Path(text), None
    file, _, column = text.rpartition(":")
    return (Path(file), column) if file and column and is_input(Path(file)) else None


def read_parts(path: Path, column: str | None = None) -> pl.DataFrame:
    """``query_id`` and ``part``, in Unicode's composed form, of a file; a query may be in several parts.

    A file with more columns, which are named, has the parts in ``column``; a query without a text there is in no part.
    """
    layout = _PARTS
    if column is not None:
        names, expected = (QUERY_IDS, (plain_name(column),)), f"a query id and {column}"
        layout = replace(_PARTS, names=names, places={}, expected=expected)
    _check_columns(path, layout)
    faults = Faults(path)
    found = []
    for number, (query, part) in rows(path, layout, faults):
        found.append((query.strip(" "), part.strip()))
        if not all(found[-1]) and column is None:
            faults.add(number, f"expected {_PARTS.expected}")
    if not found and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()
    return _frame([row for row in found if all(row)])


def _check_columns(path: Path, layout: Layout) -> None:
    """Refuse a file of more columns than two where none of these is named, and one without the column that is."""
    _, first = next(records(path, layout, Faults(path)), (0, None))
    if first is None or (isinstance(first, list) and len(first) in layout.places):
        return
    if isinstance(first, list):
        what = f"{path} does not name its {counted(len(first), 'column')}"
        raise UserError(what, do="Write names into its first line, such as query_id,part")
    there = list(map(plain_name, first))
    if not all(set(names) & set(there) for names in layout.names):
        others = [name for name in first if plain_name(name) not in QUERY_IDS]
        do = (
            f"Name the column of the parts, as in {shlex.quote(f'{path}:{others[-1]}')}"
            if others
            else "Add a column of parts"
        )
        if not set(QUERY_IDS) & set(there):
            do = f"Call the column of the queries' ids {QUERY_IDS[0]}"
        raise UserError(f"{path} has the columns {choices(first)}", do=do)


def write_parts(parts: pl.DataFrame, path: Path) -> None:
    """Write ``query_id`` and ``part`` as :func:`read_parts` reads them."""
    is_csv = path.suffix.lower() == ".csv"
    text = parts.write_csv() if is_csv else parts.write_csv(separator="\t", quote_style="never")
    atomic.write_text(path, text)


def field_of_queries(queries: Path, field: str) -> pl.DataFrame:
    """``query_id`` and ``part`` by a field of ``queries.jsonl``: none for a query that has no text or number there.

    A list puts a query in several parts.

    ``queries`` was read already; ``field`` has dots between the names of nested ones.
    """
    return _frame(list(_values(queries, field.split("."))))


def scalar_fields(queries: Path) -> list[str]:
    """Names of the fields of the first query that :func:`field_of_queries` can divide by."""
    entry = json.loads(next(read_lines(queries), (1, "{}"))[1])
    nested = entry.get("metadata")
    names = [f"metadata.{name}" for name in nested if _text(nested[name])] if isinstance(nested, dict) else []
    return names + [name for name in entry if name not in ("_id", "text") and _text(entry[name])]


def _values(queries: Path, names: list[str]) -> Iterator[tuple[str, str]]:
    for _, line in read_lines(queries):
        entry = json.loads(line) if line.strip() else {}
        value: Any = entry
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        for each in value if isinstance(value, list) else [value]:
            if text := _text(each):
                yield entry["_id"], text


def _text(value: Any) -> str:
    """The text of a scalar, or of the first in a list; empty for anything else."""
    first = value[0] if isinstance(value, list) and value else value
    return str(first).strip() if isinstance(first, str | int | float) else ""


def _frame(rows: list[tuple[str, str]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, SCHEMA, orient="row").with_columns(pl.col("part").str.normalize("NFC"))
    return frame.unique(maintain_order=True)
