"""A query log without judgements: a file of queries, one a line, with columns in any order."""

import csv
import re
from pathlib import Path

import polars as pl

from builder.collection import OWN, Collection
from eval_kit.authors.draft import input_record
from eval_kit.errors import UserError
from eval_kit.files.formats import QUERIES_SCHEMA, read_queries

TEXTS = ("query", "text", "question", "keyword")
IDS = ("query_id", "qid", "id", "_id")
NO_JUDGEMENTS = (
    "the log has no judgements: the parts can be looked at, compared and sampled, but no system can be scored"
)
_COUNTS = ("count", "frequency", "n")


def collection(path: Path) -> Collection:
    """Read a log: each distinct text is one query, whose id is that of its first line, or that line's number.

    With a header, the query is the column ``query``, ``text``, ``question`` or ``keyword``, the id ``query_id``,
    ``qid``, ``id`` or ``_id`` if it names each distinct text, and ``count``, ``frequency`` or ``n`` says how often it
    was asked; other columns, such as dates, are not used. Without one, the query is the last of at most two columns,
    and the first the id.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            is_json = (first := file.readline()).startswith("{")  # JSON lines, as BEIR's
            file.seek(0)
            tabs = "\t" in first or path.suffix.lower() != ".csv"
            reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(file, strict=True)
            lines = [] if is_json else [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"Could not read {path} as a query log: {getattr(error, 'strerror', None) or error}") from error
    if len(columns := first.split()) in (4, 6) and columns[1] in ("0", "Q0"):
        raise UserError(f"{path} contains a run or judgements, not queries")
    if is_json:
        lines = list(enumerate([["query_id", "query"], *map(list, read_queries(path).iter_rows())]))
    if not lines:
        raise UserError(f"{path} is empty")
    rows = [row for _, row in lines]
    header = [field.strip().lower() for field in rows[0]]
    text = _column(header, TEXTS)
    if text is None:
        if len(rows[0]) > 2:
            raise UserError(
                f"{path}:1: the header names no column of queries", do=f"Call it one of: {', '.join(TEXTS)}"
            )
        text, identifier, count = len(rows[0]) - 1, 0 if len(rows[0]) == 2 else None, None
    else:
        identifier, count, rows = _column(header, IDS), _column(header, _COUNTS), rows[1:]
    for number, row in lines:
        if len(row) != len(header):
            raise UserError(f"{path}:{number}: {len(row)} columns, but the first line has {len(header)}")
    texts = pl.Series([" ".join(row[text].split()) for row in rows], dtype=pl.String)
    numbers = pl.int_range(1, len(rows) + 1, eager=True).cast(pl.String)
    ids = numbers if identifier is None else pl.Series([row[identifier] for row in rows], dtype=pl.String)
    frame = pl.DataFrame({"query_id": ids, "number": numbers, "text": texts})
    counts = [] if count is None else [int(row[count]) for row in rows if re.fullmatch(r"\d{1,18}", row[count])]
    searches = len(rows) if count is None else sum(counts)
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
            f"{len(rows):,} rows of the log, asked {searches:,} times, hold {distinct.height:,} distinct queries",
            NO_JUDGEMENTS,
            *remarks,
        ],
    )


def _column(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)
