"""A query log without judgements: a file of queries, one a line, with columns in any order."""

import re
from pathlib import Path

import polars as pl

from builder.collection import OWN, Collection
from eval_kit.authors.draft import input_record
from eval_kit.errors import UserError
from eval_kit.files.faults import Faults
from eval_kit.files.formats import QUERIES_SCHEMA
from eval_kit.files.numbers import finite_number
from eval_kit.files.records import Layout, plain_name, rows

TEXTS = ("query", "text", "question", "keyword")
IDS = ("query_id", "qid", "id", "_id")
NO_JUDGEMENTS = (
    "the log has no judgements: the parts can be looked at, compared and sampled, but no system can be scored"
)
_LOG = Layout(
    names=(TEXTS, IDS, ("count", "frequency", "n")),
    places={1: (0, None, None), 2: (1, 0, None)},
    expected="a query, or its id and the query, or a header that names the column of queries " + ", ".join(TEXTS),
    is_row=lambda fields: len(fields) == 1,
    is_header=lambda fields: len(fields) > 1 and plain_name(fields[0]) in IDS,
    number=2,
    optional=(1, 2),
)
_BY_THOUSANDS = re.compile("[0-9]{1,3}(,[0-9]{3})+")
_QUOTED = re.compile('"(?=.*"".*")([^"]|"")*"')


def collection(path: Path) -> Collection:
    """Read a log: each distinct text is one query, whose id is that of its first line, or that line's number.

    With a header, the query is the column ``query``, ``text``, ``question`` or ``keyword``, the id ``query_id``,
    ``qid``, ``id`` or ``_id`` if it names each distinct text, and ``count``, ``frequency`` or ``n`` says how often it
    was asked; other columns, such as dates, are not used. Without one, the query is the last of at most two columns,
    and the first the id.
    """
    faults = Faults(path)
    lines = list(rows(path, _LOG, faults))
    if lines and len(columns := lines[0][1][0].split()) in (4, 6) and columns[1] in ("0", "Q0"):
        raise UserError(f"{path} contains a run or judgements, not queries")
    faults.raise_any()
    lines = [(number, row) for number, row in lines if any(row)]
    counts = [_times(row[2]) for _, row in lines] if any(row[2] for _, row in lines) else [1] * len(lines)
    for (number, row), count in zip(lines, counts, strict=True):
        if count is None:
            faults.add(number, f"{row[2][:40]!r} is not a whole number, which says how often a query was asked")
        if "\0" in row[0]:
            faults.add(number, "the query contains a zero byte")
    faults.raise_any()
    if not lines:
        raise UserError(f"{path} is empty")
    texts = pl.Series([" ".join(_unquoted(row[0]).split()) for _, row in lines], dtype=pl.String)
    numbers = pl.int_range(1, len(lines) + 1, eager=True).cast(pl.String)
    ids = pl.Series([row[1] for _, row in lines], dtype=pl.String)
    frame = pl.DataFrame({"query_id": ids if (ids != "").any() else numbers, "number": numbers, "text": texts})
    searches = sum(filter(None, counts))
    distinct = frame.filter(pl.col("text") != "").unique("text", keep="first", maintain_order=True)
    if not distinct.height:
        raise UserError(f"{path} contains no query")
    remarks = []
    if distinct["query_id"].is_duplicated().any() or not distinct["query_id"].str.contains(r"^\S+$").all():
        distinct = distinct.with_columns(query_id="number")
        remarks.append("the log's ids are not those of its texts; a query's id is the number of its first row")
    name = path.name
    return Collection(
        name=path.stem,
        source=f"the query log {name}",
        queries={"train": distinct.select(list(QUERIES_SCHEMA))},
        qrels={},
        is_log=True,
        inputs=[input_record(path, name, OWN)],
        remarks=[
            f"{len(lines):,} rows of the log, asked {searches:,} times, hold {distinct.height:,} distinct queries",
            NO_JUDGEMENTS,
            *remarks,
        ],
    )


def _times(text: str) -> int | None:
    """A whole number, also as dataframes (3.0) and sheets (1,234) write it; None for anything else."""
    plain = text.strip(" ")
    number = finite_number(plain.replace(",", "") if _BY_THOUSANDS.fullmatch(plain) else plain)
    return int(number) if number is not None and number.is_integer() and 0 <= number < 2**53 else None


def _unquoted(text: str) -> str:
    """The text of a field that dataframes have quoted because it contains quotes; others may be part of the query."""
    return text[1:-1].replace('""', '"') if _QUOTED.fullmatch(text) else text
