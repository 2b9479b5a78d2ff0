"""The part of each query, from a file of ids and parts or from a field of BEIR's queries."""

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.text import read_lines

SCHEMA = {"query_id": pl.String(), "part": pl.String()}
_IDS = ("query_id", "query-id", "qid", "q_id", "id", "_id", "query")


def read_parts(path: Path) -> pl.DataFrame:
    """``query_id`` and ``part``, in Unicode's composed form, of a file; a query may be in several parts.

    Args:
        path: TSV, or CSV by its name, of query id and part; a first line that names the id's column is a header.

    Raises:
        UserError: a line is not as expected, or the file is empty.
    """
    separator = "," if path.suffix.lower() == ".csv" else "\t"
    rows = []
    for number, line in read_lines(path):
        fields = next(csv.reader(StringIO(line))) if separator == "," and line else line.split(separator)
        if not line.strip() or (number == 1 and fields[0].strip().lower() in _IDS):
            continue
        if len(fields) != 2 or not all(map(str.strip, fields)):
            name = "comma" if separator == "," else "tab"
            raise UserError(f"{path}:{number}: expected a query id and a part, separated by a {name}")
        rows.append((fields[0].strip(), fields[1].strip()))
    if not rows:
        raise UserError(f"{path}: is empty")
    return _frame(rows)


def write_parts(parts: pl.DataFrame, path: Path) -> None:
    """Write ``query_id`` and ``part`` as :func:`read_parts` reads them.

    Raises:
        UserError: the file cannot be written.
    """
    is_csv = path.suffix.lower() == ".csv"
    text = parts.write_csv() if is_csv else parts.write_csv(separator="\t", quote_style="never")
    atomic.write_text(path, text)


def field_of_queries(queries: Path, field: str) -> pl.DataFrame:
    """``query_id`` and ``part`` by a field of ``queries.jsonl``: none for a query that has no text or number there.

    A list puts a query in several parts.

    Args:
        queries: a file that :func:`eval_kit.files.beir.read_queries` reads.
        field: with dots between the names of nested ones, as in ``metadata.article``.
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
