"""Given parts of queries: a field of a BEIR folder's queries, or a file of ids and parts."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files.text import read_lines

SCHEMA = {"query_id": pl.String(), "part": pl.String()}


def read_parts(parts: str, collection: Path) -> pl.DataFrame:
    """``query_id`` and ``part``, in Unicode's composed form, of the queries that have one.

    Args:
        parts: a TSV of query id and part, without a header; else a field of ``queries.jsonl``, with dots between the
            names of nested ones: ``metadata.article``.
        collection: the BEIR folder.

    Raises:
        UserError: neither is there, a line is not as expected, or a query has two parts.
    """
    path = Path(parts)
    queries = collection / "queries.jsonl"
    if not path.is_file() and not queries.is_file():
        raise UserError(f"--parts {parts}: is no file, and {collection} has no queries.jsonl with such a field")
    rows = list(_of_file(path) if path.is_file() else _of_field(queries, parts.split(".")))
    if not rows:
        why = "is empty" if path.is_file() else "no query has a text or number there"
        raise UserError(f"--parts {parts}: {why}")
    frame = pl.DataFrame(rows, SCHEMA, orient="row").with_columns(pl.col("part").str.normalize("NFC"))
    frame = frame.unique(maintain_order=True)
    twice = frame.filter(pl.col("query_id").is_duplicated())
    if twice.height:
        raise UserError(f"--parts {parts}: query {twice['query_id'][0]} has two parts")
    return frame


def _of_file(path: Path) -> Any:
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != 2 or not all(map(str.strip, fields)):
            raise UserError(f"{path}:{number}: expected a query id and a part, separated by a tab")
        yield fields[0], fields[1].strip()


def _of_field(path: Path, names: list[str]) -> Any:
    for _, line in read_lines(path):
        entry = json.loads(line)
        value: Any = entry
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str | int | float) and str(value).strip():
            yield entry["_id"], str(value).strip()
