"""The file formats that queries and judgements come in. Every fault names its file and line."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.files.ids import QUERY_NAMES
from eval_kit.files.text import read_lines, whole_number

_BREAKS = "[\\t\\n\\r\\x0b\\x0c\\x1c-\\x1e\\x{85}\\x{2028}\\x{2029}]"
"""What Python's ``splitlines`` and other readers of lines take for the end of one, and tabs."""
_NOT_IN_IDS = "[\\s\\x00\\x{feff}]"
QRELS_SCHEMA = {"query-id": pl.String(), "corpus-id": pl.String(), "score": pl.Int64()}
SCORED_AS = {"query-id": "query_id", "corpus-id": "passage_id", "score": "relevance"}
"""The columns of judgements as scoring calls them."""
QUERIES_SCHEMA = {"query_id": pl.String(), "text": pl.String()}


def read_queries(path: Path) -> pl.DataFrame:
    """Read ``id<TAB>text`` lines; texts are kept as they are, only the line end (``\\n``, ``\\r\\n``) goes.

    Returns:
        ``query_id`` and ``text`` in file order.

    Raises:
        UserError: a line without exactly one tab, an empty id or text, or an id that appears twice.
    """
    rows: dict[str, str] = {}
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != 2 or not fields[0].strip() or not fields[1].strip():
            raise UserError(f"{path}:{number}: expected a query id, a tab and a text")
        query_id, text = fields
        if query_id in rows:
            raise UserError(f"{path}:{number}: query id {query_id} appears twice")
        rows[query_id] = text
    return pl.DataFrame({"query_id": list(rows), "text": list(rows.values())}, QUERIES_SCHEMA)


def read_trec_qrels(path: Path) -> pl.DataFrame:
    """Read TREC judgements: query, an unused field, passage and grade, separated by blanks or tabs.

    Comments (``#``) and a line of columns' names before them are left out.

    Returns:
        ``query-id``, ``corpus-id``, ``score``, one row per line (a pair may appear twice).

    Raises:
        UserError: a line without four fields, or a grade that is not a whole number.
    """
    rows = list[tuple[str, str, int]]()
    for number, line in read_lines(path):
        fields = line.split()
        grade = whole_number(fields[3]) if len(fields) == 4 else None
        if grade is None and not rows and (line.startswith("#") or "".join(fields[:1]).lower() in QUERY_NAMES):
            continue
        if len(fields) != 4:
            raise UserError(f"{path}:{number}: expected 4 columns (query, 0, passage, grade), found {len(fields)}")
        if grade is None:
            raise UserError(f"{path}:{number}: the grade {fields[3][:40]!r} is not a whole number")
        rows.append((fields[0], fields[2], grade))
    return pl.DataFrame(rows, QRELS_SCHEMA, orient="row")


def read_json_qrels(path: Path) -> pl.DataFrame:
    """Read judgements of the form ``{query: {passage: grade}}``.

    Returns:
        ``query-id``, ``corpus-id``, ``score`` in file order.
    """
    document = strict_json.read(path)
    try:
        rows = [(query, passage, int(grade)) for query, many in document.items() for passage, grade in many.items()]
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: not judgements in JSON ({{query: {{passage: grade}}}}): {error}") from error
    return pl.DataFrame(rows, QRELS_SCHEMA, orient="row")


def tab_separated(frame: pl.DataFrame) -> Iterator[str]:
    """``id<TAB>text`` of each row, for tools that know no quotes: a tab or line break in a text becomes a blank.

    Warns:
        UserWarning: how many texts were changed so.

    Raises:
        UserError: an id that would be another one in such a file, or would not be one; a text that is missing.
    """
    ids, texts = frame.get_columns()
    check_ids(ids)
    if missing := texts.null_count():
        first = ids.filter(texts.is_null())[0]
        raise UserError(f"{missing:,} of the {len(texts):,} texts are missing, such as that of {first}")
    count = int(texts.str.contains(_BREAKS).sum())
    if count:
        warnings.warn(f"tabs and line breaks in {count:,} texts were replaced by blanks", stacklevel=2)
    yield from (ids + "\t" + texts.str.replace_all(_BREAKS, " ")).to_list()


def check_ids(ids: pl.Series) -> None:
    """Refuse ids that the columns or lines of a text file would divide.

    Raises:
        UserError: naming the first.
    """
    strange = ids.filter(ids.is_null() | (ids == "") | ids.str.contains(_NOT_IN_IDS))
    if len(strange):
        why = "it is empty, or holds a blank or a line break"
        raise UserError(f"the {ids.name} {strange[0]!r:.40} cannot be written: {why}")


def by_id(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Sort rows by the given columns: ids that are numbers as numbers, others after them as text."""
    keys = []
    for column in columns:
        if frame.schema[column] == pl.String:
            keys.append(pl.col(column).cast(pl.Int64, strict=False))
        keys.append(pl.col(column))
    return frame.sort(keys, nulls_last=True, maintain_order=True)
