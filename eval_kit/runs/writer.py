"""Write runs: six columns, whole or not at all, in constant memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import IO

import polars as pl

from eval_kit.errors import disk_errors
from eval_kit.files import atomic


def write(rows: Iterable[tuple[str, str, int, float]], path: Path, tag: str) -> None:
    """Write ``(query id, passage id, rank, score)`` rows as a TREC run; scores keep every digit they have.

    Blanks in the tag, which would be columns, become hyphens.
    """
    tag = "-".join(tag.split())
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{query} Q0 {passage} {rank} {score!r} {tag}\n" for query, passage, rank, score in rows)


def ranking(lines: pl.DataFrame) -> pl.DataFrame:
    """:func:`eval_kit.runs.rows.lines` by query and, within it, as trec_eval orders them, with ``rank`` from 1."""
    order = ["query", "score", "passage_id"]
    first = pl.col("row").min().over("query_id")
    return (
        lines.with_row_index("row")
        .with_columns(query=first)
        .sort(order, descending=[False, True, True])
        .with_columns(rank=pl.int_range(1, pl.len() + 1).over("query"))
    )


def write_lines(lines: pl.DataFrame, file: Path | IO[bytes], tag: str) -> None:
    """Write lines as a TREC file; blanks in the tag become hyphens. Ids with blanks need tabs between the columns."""
    constants = {"q0": pl.lit("Q0"), "tag": pl.lit("-".join(tag.split()) or "run")}
    columns = ["query_id", "q0", "passage_id", "rank", "score", "tag"]
    has_blanks = any(lines[column].str.contains(" ", literal=True).any() for column in ("query_id", "passage_id"))
    lines.with_columns(**constants).select(columns).write_csv(
        file, include_header=False, separator="\t" if has_blanks else " ", quote_style="never"
    )
