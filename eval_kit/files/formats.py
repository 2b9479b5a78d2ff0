"""The file formats that queries and judgements come in. Every fault names its file and line."""

import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.files.faults import Faults
from eval_kit.files.ids import GRADE_NAMES, PASSAGE_NAMES, no_ids, why_no_id
from eval_kit.files.numbers import whole_number
from eval_kit.files.records import QUERY_IDS, Layout, columns, rows
from eval_kit.sentences import counted

_BREAKS = "[\\t\\n\\r\\x0b\\x0c\\x1c-\\x1e\\x{85}\\x{2028}\\x{2029}]"
"""What Python's ``splitlines`` and other readers of lines take for the end of one, and tabs."""
_NOT_IN_IDS = "[\\s\\x00\\x{feff}]"
QRELS_SCHEMA = {"query-id": pl.String(), "corpus-id": pl.String(), "score": pl.Int64()}
SCORED_AS = {"query-id": "query_id", "corpus-id": "passage_id", "score": "relevance"}
"""The columns of judgements as scoring calls them."""
QUERIES_SCHEMA = {"query_id": pl.String(), "text": pl.String()}


_TEXT_NAMES = ("text", "query", "question")


def _is_header(fields: Sequence[str]) -> bool:
    """Whether columns have names: the first is a known one, or there are three as in BEIR, whatever they are called."""
    is_known = fields[0].lower() in QUERY_IDS and whole_number(fields[-1]) is None
    return is_known or (len(fields) == 3 and not fields[-1][-1:].isdecimal())


_JUDGEMENTS = Layout(
    names=(QUERY_IDS, PASSAGE_NAMES, GRADE_NAMES),
    places={4: (0, 2, 3), 3: (0, 1, 2)},
    expected="query, 0, passage and grade, or query, passage and grade",
    is_row=lambda fields: whole_number(fields[-1]) is not None,
    is_header=_is_header,
    by_blanks=True,
    number=2,
    rivals=GRADE_NAMES[:-1],
)
_QUERIES = Layout(
    names=(QUERY_IDS, _TEXT_NAMES),
    places={2: (0, 1)},
    expected="a query's id and a text",
    is_header=lambda fields: False,
)


def read_queries(path: Path) -> pl.DataFrame:
    """Read queries in any form of :mod:`eval_kit.files.records`; texts are kept as they are, and may be empty.

    Returns ``query_id`` and ``text`` in file order.
    """
    faults = Faults(path)
    texts: dict[str, str] = {}
    for number, (query, text) in rows(path, _QUERIES, faults):
        if no_id := why_no_id(query):
            faults.add(number, f"query id {query[:40]!r} {no_id}")
        elif query in texts:
            faults.add(number, f"query {query} appears twice")
        else:
            texts[query] = text
    if not texts and not faults.count:
        faults.add(1, "the file is empty")
    faults.raise_any()
    return pl.DataFrame({"query_id": list(texts), "text": list(texts.values())}, QUERIES_SCHEMA)


def read_qrels(path: Path) -> pl.DataFrame:
    """Read judgements in any form of :mod:`eval_kit.files.records`, such as TREC's four columns and BEIR's three.

    Returns ``query-id``, ``corpus-id``, ``score``, one row per line (a pair may appear twice).
    """
    if (judgements := _judged_columns(path)) is not None:
        return judgements
    faults = Faults(path)
    found = list(_judged(path, faults))
    faults.raise_any()
    return pl.DataFrame([row for _, *row in found], QRELS_SCHEMA, orient="row")


def read_judgements(path: Path, queries: Collection[str] | None = None) -> pl.DataFrame:
    """As :func:`read_qrels`, each pair once, of these queries if any are given."""
    judged = _judged_columns(path)
    if judged is not None and (queries is None or set(queries).issuperset(judged["query-id"].unique())):
        judged = judged.unique(maintain_order=True)
        if not judged.select("query-id", "corpus-id").is_duplicated().any():
            return judged
    faults = Faults(path)
    grades: dict[tuple[str, str], int] = {}
    for number, query, passage, grade in _judged(path, faults):
        if queries is not None and query not in queries:
            faults.add(number, f"query {query} is not among the queries")
        elif grades.setdefault((query, passage), grade) != grade:
            faults.add(number, f"passage {passage} has two grades for query {query}")
    if not grades and not faults.count:
        faults.add(1, "the file contains no judgements")
    faults.raise_any()
    return pl.DataFrame([(*pair, grade) for pair, grade in grades.items()], QRELS_SCHEMA, orient="row")


def _judged_columns(path: Path) -> pl.DataFrame | None:
    """The judgements of a file, as :data:`QRELS_SCHEMA`, if no line of it is in doubt."""
    texts = columns(path, _JUDGEMENTS)
    if texts is None or texts.is_empty() or not texts["2"].str.contains("^-?[0-9]{1,18}$").all():
        return None
    if any(len(no_ids(texts[column])) for column in ("0", "1")):
        return None
    return texts.select(pl.col("0", "1"), pl.col("2").cast(pl.Int64)).rename(
        dict(zip("012", QRELS_SCHEMA, strict=True))
    )


def _judged(path: Path, faults: Faults) -> Iterator[tuple[int, str, str, int]]:
    """Line, query, passage and grade of each judgement that is one."""
    for number, (query, passage, score) in rows(path, _JUDGEMENTS, faults):
        grade = whole_number(score)
        if grade is None:
            faults.add(number, f"the grade {score[:40]!r} is not a whole number")
        elif no_id := why_no_id(query) or why_no_id(passage):
            faults.add(number, f"an id, {query[:40]!r} or {passage[:40]!r}, {no_id}")
        else:
            yield number, query, passage, grade


def read_json_qrels(path: Path) -> pl.DataFrame:
    """Read judgements of the form ``{query: {passage: grade}}``.

    Returns ``query-id``, ``corpus-id``, ``score`` in file order.
    """
    document = strict_json.read(path)
    try:
        rows = [(query, passage, int(grade)) for query, many in document.items() for passage, grade in many.items()]
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f"{path} does not contain judgements", f"In JSON they are {{query: {{passage: grade}}}} ({error})"
        ) from error
    return pl.DataFrame(rows, QRELS_SCHEMA, orient="row")


def tab_separated(frame: pl.DataFrame) -> Iterator[str]:
    """``id<TAB>text`` of each row, for tools that know no quotes: a tab or line break in a text becomes a blank.

    Warns:
        UserWarning: how many texts were changed so.
    """
    ids, texts = frame.get_columns()
    check_ids(ids)
    if missing := texts.null_count():
        first = ids.filter(texts.is_null())[0]
        raise UserError(
            f"{missing:,} of {counted(len(texts), 'text')} {'is' if missing == 1 else 'are'} missing",
            f"The first is the text of {first}",
        )
    count = int(texts.str.contains(_BREAKS).sum())
    if count:
        warnings.warn(f"The kit replaced tabs and line breaks in {counted(count, 'text')} by blanks", stacklevel=2)
    yield from (ids + "\t" + texts.str.replace_all(_BREAKS, " ")).to_list()


def check_ids(ids: pl.Series) -> None:
    """Refuse ids that the columns or lines of a text file would divide."""
    strange = ids.filter(ids.is_null() | (ids == "") | ids.str.contains(_NOT_IN_IDS))
    if len(strange):
        why = "It is empty, or contains a blank or a line break"
        raise UserError(f"Could not write the {ids.name} {strange[0]!r:.40}", why)


def by_id(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Sort rows by the given columns: ids that are numbers as numbers, others after them as text."""
    keys = []
    for column in columns:
        if frame.schema[column] == pl.String:
            keys.append(pl.col(column).cast(pl.Int64, strict=False))
        keys.append(pl.col(column))
    return frame.sort(keys, nulls_last=True, maintain_order=True)
