"""Runs that are no text, by the rules that files obey: a dataframe, dictionaries, other tools' objects."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from operator import attrgetter, itemgetter
from os import PathLike
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files.ids import PASSAGE_NAMES, QUERY_NAMES, no_ids, why_no_id

QUERY, PASSAGE = QUERY_NAMES, PASSAGE_NAMES
SCORE = ("score",)
_MTEB = "mteb_model_meta"
"""A key of the predictions that MTEB writes; the others are subsets, of splits."""
EXPECTED = "A run is a path, {query: {passage: score}}, {query: [(passage, score)]}, or a dataframe or rows"


def lines(name: str, run: Any) -> pl.DataFrame:
    """The lines of a run that is no file: ``query_id``, ``passage_id``, ``score``, and ``rank`` if it states any."""
    queries, passages, scores, *ranks = _columns(name, run)
    frame = pl.DataFrame(
        {
            "query_id": _ids(name, "query", queries),
            "passage_id": _ids(name, "passage", passages),
            "score": _scores(name, scores),
        }
    )
    if frame.is_empty():
        raise UserError(f"{name} contains no passages")
    stated = pl.Series(map(_rank, _as_list(ranks[0])), dtype=pl.Int64) if ranks else None
    return frame if stated is None or stated.null_count() else frame.with_columns(rank=stated)


def apart(runs: Any, unnamed: str) -> list[tuple[Any, Any]]:
    """Each of the runs that a caller gave, with its name: None for a path, numbered for others without one."""
    if isinstance(runs, Mapping) and _MTEB in runs:
        subsets = {subset: splits for subset, splits in runs.items() if subset != _MTEB}
        runs = {f"{subset}.{split}": scores for subset in subsets for split, scores in subsets[subset].items()}
        runs = runs if len(runs) > 1 else next(iter(runs.values()), {})
    if isinstance(runs, Mapping) and not _is_one_run(runs):
        return [("" if name is None else name, run) for name, run in runs.items()]  # None: no name is given
    given = [runs]
    if isinstance(runs, Sequence) and not isinstance(runs, str | bytes):
        given = [runs] if runs and all(map(is_row, runs)) else list(runs)
    names = [unnamed] if len(given) == 1 else [f"{unnamed}{number}" for number in range(1, len(given) + 1)]
    return [(None if isinstance(run, str | PathLike) else name, run) for name, run in zip(names, given, strict=True)]


def _is_one_run(runs: Mapping[str, Any]) -> bool:
    """Whether a mapping is one run, with passages inside its values, not names and runs (which may be empty)."""
    if is_columns(runs):
        return True
    values = list(runs.values())
    if values and all(isinstance(value, list | tuple) for value in values):
        first = next((item for value in values for item in value), None)
        if is_row(first):  # with the query's id: a run by name, unless each is called by its query
            return all(value and _query_of(value[0]) == str(name) for name, value in runs.items())
        return first is not None and not hasattr(first, "columns")
    passages = [value for value in values if isinstance(value, Mapping)]
    return (
        len(passages) == len(runs)
        and (any(passages) or not runs)
        and not any(map(is_columns, passages))
        and not any(isinstance(score, Mapping | list | tuple) for scores in passages for score in scores.values())
    )


def is_row(item: Any) -> bool:
    """Whether this is one line of a run: a dictionary or an object with two ids and a score."""
    score = _getter(item, SCORE)
    if hasattr(item, "columns") or not (score and _getter(item, QUERY) and _getter(item, PASSAGE)):
        return False
    value = score(item)
    return not (isinstance(value, Mapping | list | tuple | pl.Series) or getattr(value, "ndim", False))


def _query_of(row: Any) -> str:
    """The query's id of one line."""
    query = _getter(row, QUERY)
    return str(query(row)) if query else ""


def is_columns(run: Mapping[Any, Any]) -> bool:
    """Whether a dictionary has a run's columns, ``{"query_id": [...], "doc_id": [...], "score": [...]}``."""
    names = [next(filter(run.__contains__, each), None) for each in (QUERY, PASSAGE, SCORE)]
    return None not in names and not any(isinstance(run[name], Mapping) for name in names)


def _getter(item: Any, names: Sequence[str]) -> Callable[[Any], Any] | None:
    """What takes the first of the fields that an item has."""
    if isinstance(item, Mapping):
        return next((itemgetter(name) for name in names if name in item), None)
    return next((attrgetter(name) for name in names if hasattr(item, name)), None)


def _columns(name: str, run: Any) -> list[Any]:
    """Query ids, passage ids, scores, and ranks if there are any, in one order."""
    if hasattr(run, "to_dict") and type(run).__module__.startswith("ranx"):
        run = run.to_dict()
    if type(run).__module__.startswith("pyarrow"):
        run = pl.from_arrow(run)
    if isinstance(run, pl.LazyFrame):
        run = run.collect()
    if isinstance(run, Mapping) and not is_columns(run):
        return _of_queries(name, run)
    is_frame = isinstance(run, Mapping) or hasattr(run, "columns")
    if isinstance(run, Iterable) and not is_frame and not isinstance(run, str | bytes):
        items = list(run)
        return _fields(name, items, [QUERY, PASSAGE, SCORE]) if items else [[], [], []]
    present = list(map(str, run if isinstance(run, Mapping) else getattr(run, "columns", ())))
    names = [next(filter(present.__contains__, each), None) for each in (QUERY, PASSAGE, SCORE)]
    if None in names:
        what = f"its columns are {', '.join(present)}" if present else f"it is a {type(run).__name__}"
        layout = f"a query's id ({', '.join(QUERY)}), a passage's ({', '.join(PASSAGE)}) and score"
        raise UserError(f"{name} is not a run: {what}", f"{EXPECTED} with {layout}")
    our_columns = [*names, *(["rank"] if "rank" in present else [])]
    if twice := [column for column in our_columns if present.count(str(column)) > 1]:
        raise UserError(f"{name} has two columns called {twice[0]}")
    return [run[column] for column in our_columns]


def _of_queries(name: str, run: Mapping[Any, Any]) -> list[Any]:
    """The columns of ``{query: {passage: score}}``, or of a list of passages with their scores for each query."""
    columns: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for query, of_query in run.items():
        if isinstance(of_query, Mapping):
            passages, scores = list(of_query.keys()), list(of_query.values())
        elif isinstance(of_query, list | tuple):
            passages, scores = _fields(f"{name}: query {query!r}", of_query, [PASSAGE, SCORE]) if of_query else ([], [])
        else:
            raise UserError(f"{name} has a {type(of_query).__name__} for query {query!r}", EXPECTED)
        for column, values in zip(columns, ([query] * len(passages), passages, scores), strict=True):
            column += values
    if len(set(map(str, run))) < len(run):
        raise UserError(f"{name} has a query twice, as a text and as a number")
    return list(columns)


def _fields(name: str, items: Sequence[Any], fields: Sequence[Sequence[str]]) -> list[list[Any]]:
    """These fields of all items: dictionaries or objects, or pairs of a passage and its score."""
    is_pair = len(fields) == 2 and type(items[0]) in (list, tuple) and len(items[0]) == 2
    getters = [itemgetter(0), itemgetter(1)] if is_pair else [_getter(items[0], names) for names in fields]
    try:
        if None not in getters:
            return [list(map(get, items)) for get in getters if get]
    except (AttributeError, LookupError, TypeError):
        pass
    what = " and ".join(f"one of {', '.join(names)}" if names[1:] else names[0] for names in fields)
    raise UserError(f"{name} contains {_cut(items[0])}", f"{EXPECTED}, each with {what}")


def _ids(name: str, what: str, column: Any) -> pl.Series:
    """Ids as text: of text or whole numbers, without what separates the columns and lines of a file."""
    if isinstance(column, pl.Series) and column.dtype != pl.Object:
        if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum)):
            raise UserError(f"The {what} ids of {name} are {column.dtype}, not text or whole numbers")
        ids = column.cast(pl.String)
    else:
        values = _as_list(column)
        kinds: set[Any] = set(map(type, values))
        wrong_kinds = {kind for kind in kinds if not issubclass(kind, str | Integral) or kind is bool}
        if wrong_kinds:
            value = next(value for value in values if type(value) in wrong_kinds)
            raise UserError(f"The {what} id {_cut(value)} of {name} is neither text nor a whole number")
        try:
            ids = pl.Series(values if kinds <= {str} else list(map(str, values)), dtype=pl.String)
        except UnicodeEncodeError:
            raise UserError(f"A {what} id of {name} contains one half of a surrogate pair") from None
    if ids.null_count():
        raise UserError(f"{name} lacks a {what} id")
    if len(wrong := no_ids(ids)):
        raise UserError(f"The {what} id {_cut(wrong[0])} of {name} {why_no_id(wrong[0])}")
    return ids


def _scores(name: str, column: Any) -> pl.Series:
    """Finite float64 numbers, one by one: none decides the type of another."""
    if isinstance(column, pl.Series) and column.dtype.is_numeric():
        missing = column.is_null()
        numbers = column.cast(pl.Float64)
    else:
        numbers = pl.Series([_number(name, value) for value in _as_list(column)], dtype=pl.Float64)
        missing = numbers.is_null()
    wrong = missing | ~numbers.is_finite()
    if wrong.any():
        at = wrong.arg_max() or 0
        value = None if missing[at] else numbers[at]
        raise UserError(f"{name}:{at + 1}: the score {_cut(value)} is not a finite number")
    return numbers


def _number(name: str, value: Any) -> float:
    if not isinstance(value, int | float | Real) or isinstance(value, bool):
        raise UserError(f"The score {_cut(value)} of {name} is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _rank(value: Any) -> int | None:
    """A stated rank, which decides nothing where there are scores; None for what is no whole number."""
    if not isinstance(value, int | float | Real) or not abs(float(value)) < 2**63:
        return None
    return int(value) if float(value).is_integer() else None  # type: ignore[arg-type]  # numpy's numbers are Real


def _as_list(column: Any) -> list[Any]:
    if isinstance(column, pl.Series):
        return column.to_list()
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
