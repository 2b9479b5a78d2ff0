"""Runs that are dictionaries, dataframes or other tools' objects, written as TREC files for the one strict reader.

Ids and scores are checked as the values they are, by the rules that files obey, before any text is made of them.
"""

import math
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.runs.reader import HIGHEST_RANK, LONGEST_FIELD

type Scores = Mapping[str, Mapping[str, float]]
type Run = str | PathLike[str] | Scores | Any
"""A run: a path, ``{query: {passage: score}}``, a polars, pandas or Arrow table with one of :data:`COLUMNS`, an
iterable of ir_measures' ``ScoredDoc``, or a ``ranx.Run``."""
type Runs = Run | Sequence[Run] | Mapping[str, Run]
"""A run, several, or names and their runs."""

COLUMNS = (
    ("query_id", "passage_id", "score"),
    ("query_id", "doc_id", "score"),
    ("qid", "docno", "score"),
    ("query", "passage", "score"),
)
"""The columns of a dataframe: the kit's, ir_measures', PyTerrier's and TREC's; ``rank`` may be there too."""
LONGEST_NAME = 200
"""Bytes; a file system takes 255 with the ending."""
EXPECTED = "expected a path, {query: {passage: score}} or a dataframe"
_NOT_IN_IDS = "[ \\t\\r\\n\\x00\\x{feff}]"


@contextmanager
def as_files(runs: Runs, parameter: str = "runs") -> Iterator[dict[Path, str]]:
    """Write the runs that are not files to a temporary folder.

    Args:
        runs: one run, several, or names and runs.
        parameter: what the caller calls them, for messages.

    Yields:
        The file of each run, and what it is called in messages: its path, or its name (``run``, or ``run1`` and so on
        where none was given).

    Raises:
        UserError: what is no run, an id or a score that a file could not hold, a name that no file could have. Errors
            raised in the block name the runs as the caller does.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = dict(_file(name, run, Path(folder)) for name, run in _with_names(runs))
        except UserError as error:
            raise UserError(f"{parameter}: {error}") from None
        try:
            yield files
        except UserError as error:
            message = str(error)
            for path, run_title in files.items():
                message = message.replace(str(path), run_title)
            raise type(error)(_in_python(message)) from None


def lines(name: str, run: Run) -> pl.DataFrame:
    """The lines of a run that is no file: ``query_id``, ``passage_id``, ``score``, and ``rank`` if it states one.

    Raises:
        UserError: naming the run, and the id, score or rank that is none.
    """
    queries, passages, scores, *ranks = _columns(name, run)
    frame = pl.DataFrame(
        {
            "query_id": _ids(name, "query", queries),
            "passage_id": _ids(name, "passage", passages),
            "score": _numbers(name, "score", scores),
        }
    )
    if frame.is_empty():
        raise UserError(f"{name}: holds no passages")
    return frame.with_columns(rank=_numbers(name, "rank", ranks[0]).cast(pl.Int64)) if ranks else frame


def ranking(frame: pl.DataFrame) -> pl.DataFrame:
    """:func:`lines` by query and, within it, as trec_eval orders them, with ``rank`` from 1."""
    order = ["query", "score", "passage_id"]
    first = pl.col("row").min().over("query_id")
    return (
        frame.with_row_index("row")
        .with_columns(query=first)
        .sort(order, descending=[False, True, True])
        .with_columns(rank=pl.int_range(1, pl.len() + 1).over("query"))
    )


def write(frame: pl.DataFrame, path: Path, tag: str) -> None:
    """Write :func:`lines` as a TREC file; blanks in the tag, which would be columns, become hyphens."""
    constants = {"q0": pl.lit("Q0"), "tag": pl.lit("-".join(tag.split()) or "run")}
    columns = ["query_id", "q0", "passage_id", "rank", "score", "tag"]
    frame.with_columns(**constants).select(columns).write_csv(
        path, include_header=False, separator=" ", quote_style="never"
    )


def _with_names(runs: Runs) -> list[tuple[str | None, Run]]:
    """Each run with its name; a path that has none is known by its own."""
    if isinstance(runs, Mapping) and not _is_scores(runs):
        for name in runs:
            _check_name(name)
        return list(runs.items())
    run_list: list[Run] = [runs]
    if isinstance(runs, Sequence) and not isinstance(runs, str | bytes):
        is_one_run = runs and all(hasattr(item, "doc_id") for item in runs)
        run_list = [runs] if is_one_run else list(runs)
    names = ["run"] if len(run_list) == 1 else [f"run{number}" for number in range(1, len(run_list) + 1)]
    return [(None if isinstance(run, str | PathLike) else name, run) for name, run in zip(names, run_list, strict=True)]


def _is_scores(runs: Mapping[str, Any]) -> bool:
    """Whether a mapping is one run, with numbers inside its values, rather than names and runs (which may be empty)."""
    passages = [value for value in runs.values() if isinstance(value, Mapping)]
    return (
        len(passages) == len(runs)
        and (any(passages) or not runs)
        and not any(isinstance(score, Mapping) for scores in passages for score in scores.values())
    )


def _file(name: str | None, run: Run, folder: Path) -> tuple[Path, str]:
    if name is None:
        return Path(str(run)), str(run)
    path = folder / f"{name}.trec"
    if isinstance(run, str | PathLike):
        source = Path(str(run))
        try:
            path.symlink_to(source.absolute())
        except (OSError, ValueError):  # Windows lets few accounts make links
            _copy(source, path)
        return path, str(source)
    frame = lines(name, run)
    write(frame if "rank" in frame.columns else ranking(frame).sort("row"), path, name)
    return path, name


def _copy(source: Path, path: Path) -> None:
    try:
        shutil.copyfile(source, path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{source}: cannot be read: {why}") from error


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip(". "):
        raise UserError(f"{name!r} is no name of a run; choose a text")
    if "/" in name or not name.isprintable():
        raise UserError(f"the run's name {name[:LONGEST_NAME]!r} holds a slash or control characters; choose another")
    if len(name.encode()) > LONGEST_NAME:
        raise UserError(f"the run's name {name[:40]!r}… has more than {LONGEST_NAME} bytes; choose another")


def _columns(name: str, run: Any) -> list[Any]:
    """Query ids, passage ids, scores, and ranks if there are any, in one order."""
    if hasattr(run, "to_dict") and type(run).__module__.startswith("ranx"):
        run = run.to_dict()
    if type(run).__module__.startswith("pyarrow"):
        run = pl.from_arrow(run)
    if isinstance(run, pl.LazyFrame):
        run = run.collect()
    if isinstance(run, Mapping):
        return _of_scores(name, run)
    if isinstance(run, Iterable) and not hasattr(run, "columns") and not isinstance(run, str | bytes):
        return _of_items(name, list(run))
    present = list(map(str, getattr(run, "columns", ())))
    names = next((columns for columns in COLUMNS if set(columns) <= set(present)), None)
    if names is None:
        layouts = ", or ".join(map(", ".join, COLUMNS))
        what = f"its columns are {', '.join(present)}" if present else f"it is a {type(run).__name__}"
        raise UserError(f"{name}: {EXPECTED} of {layouts}; {what}")
    our_columns = [*names, *(["rank"] if "rank" in present else [])]
    if twice := [column for column in our_columns if present.count(column) > 1]:
        raise UserError(f"{name}: the column {twice[0]} is there twice")
    return [run[column] for column in our_columns]


def _of_scores(name: str, run: Mapping[Any, Any]) -> list[Any]:
    queries: list[Any] = []
    passages: list[Any] = []
    scores: list[Any] = []
    for query, of_query in run.items():
        if not isinstance(of_query, Mapping):
            raise UserError(f"{name}: {EXPECTED}; query {query!r} has a {type(of_query).__name__}")
        queries += [query] * len(of_query)
        passages += of_query.keys()
        scores += of_query.values()
    if len(set(map(str, run))) < len(run):
        raise UserError(f"{name}: a query is there twice, as a text and as a number")
    return [queries, passages, scores]


def _of_items(name: str, items: list[Any]) -> list[Any]:
    """The columns of ir_measures' ``ScoredDoc``s."""
    try:
        return [list(map(attrgetter(column), items)) for column in ("query_id", "doc_id", "score")]
    except AttributeError as error:
        raise UserError(f"{name}: {EXPECTED}; it holds items without query_id, doc_id and score") from error


def _ids(name: str, what: str, column: Any) -> pl.Series:
    """Ids as text: of text or whole numbers, without what separates the columns and lines of a file."""
    if isinstance(column, pl.Series) and column.dtype != pl.Object:
        if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum)):
            raise UserError(f"{name}: the {what} ids are {column.dtype}, expected text or whole numbers")
        ids = column.cast(pl.String)
    else:
        values = column.to_list() if isinstance(column, pl.Series) else _as_list(column)
        kinds = set(map(type, values))
        wrong_kinds = {kind for kind in kinds if not issubclass(kind, str | int | np.integer) or kind is bool}
        if wrong_kinds:
            value = next(value for value in values if type(value) in wrong_kinds)
            raise UserError(f"{name}: the {what} id {_cut(value)} is neither text nor a whole number")
        try:
            ids = pl.Series(values if kinds <= {str} else list(map(str, values)), dtype=pl.String)
        except UnicodeEncodeError:
            raise UserError(f"{name}: a {what} id holds one half of a surrogate pair") from None
    if ids.null_count():
        raise UserError(f"{name}: a {what} id is missing")
    if len(wrong := ids.filter(ids.str.contains(_NOT_IN_IDS) | (ids == ""))):
        why = "holds a blank, a line break, a zero byte or a byte-order mark" if wrong[0] else "is empty"
        raise UserError(f"{name}: the {what} id {_cut(wrong[0])} {why}")
    if len(wrong := ids.filter(ids.str.len_bytes() > LONGEST_FIELD)):
        raise UserError(f"{name}: the {what} id {_cut(wrong[0])} is longer than {LONGEST_FIELD:,} bytes")
    return ids


def _numbers(name: str, what: str, column: Any) -> pl.Series:
    """Finite float64 numbers, one by one: none decides the type of another."""
    if isinstance(column, pl.Series) and column.dtype.is_numeric():
        missing = column.is_null()
        numbers = column.cast(pl.Float64)
    else:
        values = column.to_list() if isinstance(column, pl.Series) else _as_list(column)
        numbers = pl.Series([_number(name, what, value) for value in values], dtype=pl.Float64)
        missing = numbers.is_null()
    wrong = missing | ~numbers.is_finite()
    if what == "rank":
        wrong |= (numbers != numbers.floor()) | ~numbers.is_between(0, HIGHEST_RANK)
    if wrong.any():
        at = wrong.arg_max() or 0
        value = None if missing[at] else numbers[at]
        kind = "finite number" if what == "score" else f"whole number from 0 to {HIGHEST_RANK:,}"
        raise UserError(f"{name}:{at + 1}: the {what} {_cut(value)} is not a {kind}")
    return numbers


def _number(name: str, what: str, value: Any) -> float:
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise UserError(f"{name}: the {what} {_cut(value)} is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _in_python(message: str) -> str:
    """A command's message, its options called as Python's parameters are."""
    message = message.replace("--allow-missing", "allow_missing=True")
    return re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), message)


def _as_list(column: Any) -> list[Any]:
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
