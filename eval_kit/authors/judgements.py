"""One's own judgements and texts of queries, as files or as Python has them."""

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError, parameter
from eval_kit.files.formats import QRELS_SCHEMA, QUERIES_SCHEMA

type Table = pl.DataFrame | Sequence[Sequence[Any]]
"""Also one of pandas."""
type Judgements = str | os.PathLike[str] | Mapping[str, Mapping[str, int] | AbstractSet[str]] | Table
"""A file of judgements, ``{query: {passage: grade}}`` or ``{query: {relevant passages}}``, or a table of all three."""
type Texts = str | os.PathLike[str] | Mapping[str, str] | Table
"""A file of queries, ``{query: text}``, or a table of query and text."""


def judgements_of(given: Judgements, of: str = "qrels") -> Path | pl.DataFrame:
    """The file, or the rows, given as the argument ``of``."""
    rows: Any = given
    if isinstance(given, Mapping):
        rows = []
        for query, grades in given.items():  # a set is of relevant passages
            judged = dict.fromkeys(grades, 1) if isinstance(grades, set | frozenset) else grades
            if not isinstance(judged, Mapping):
                raise UserError(
                    f"{parameter(of)} takes grades by passage for the query {query!r:.40}, not {grades!r:.40}"
                )
            rows += [(query, passage, grade) for passage, grade in judged.items()]
        if odd := [grade for *_, grade in rows if isinstance(grade, bool) or not isinstance(grade, int)]:
            raise UserError(f"{parameter(of)} takes whole numbers as grades, not {odd[0]!r:.40}")
    found = _of_python(rows, of, QRELS_SCHEMA, "query, passage and grade")
    if isinstance(found, pl.DataFrame):
        pairs = found.select("query-id", "corpus-id")
        if pairs.is_duplicated().any():
            query, passage = pairs.filter(pairs.is_duplicated()).row(0)
            raise UserError(
                f"{parameter(of)} judges the pair {query}, {passage} twice", do="Keep one of the two grades"
            )
    return found


def texts_of(given: Texts | None) -> Path | pl.DataFrame | None:
    """The file, or the rows; None where there are none."""
    rows = given
    if isinstance(given, Mapping) and all(isinstance(text, str) for text in given.values()):
        rows = list(given.items())
    return None if given is None else _of_python(rows, "queries", QUERIES_SCHEMA, "query and text")


def _of_python(rows: Any, of: str, schema: Mapping[str, pl.DataType], what: str) -> Path | pl.DataFrame:
    """A table with these columns in this order, whatever they are called."""
    if isinstance(rows, str | os.PathLike):
        return Path(rows)
    if hasattr(rows, "to_dict") and not isinstance(rows, pl.DataFrame):  # of pandas
        rows = rows.to_dict("list")
    expected = f"{parameter(of)} takes a file, a dictionary, or a table of {what}"
    try:
        frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows, orient="row")
        if any(kind.is_float() for kind in frame.dtypes):  # scores: a run, in the place of judgements
            raise TypeError
        columns = zip(frame.columns, schema.items(), strict=True)
        named = frame.select(pl.col(own).cast(kind).alias(name) for own, (name, kind) in columns)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        shown = ", ".join(rows.columns) if isinstance(rows, pl.DataFrame) else type(rows).__name__
        raise UserError(f"{expected}, not {shown}") from error
    if named.is_empty() or sum(named.null_count().row(0)):
        raise UserError(expected, "This one is empty, or a cell of it is")
    return named
