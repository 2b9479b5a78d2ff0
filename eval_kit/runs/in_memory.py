"""Runs that are dictionaries, dataframes or other tools' objects, written as TREC files for the one strict reader.

Ids and scores are checked as the values they are, by the rules that files obey, before any text is made of them.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files.opening import open_file
from eval_kit.runs import rows

type Scores = Mapping[str, Mapping[str, float]]
type Run = str | PathLike[str] | Scores | Any
"""A run: a path, ``{query: {passage: score}}``, ``{query: [(passage, score)]}``, a polars, pandas or Arrow table or a
dictionary with the columns of :mod:`eval_kit.runs.rows`, rows of them, ir_measures' ``ScoredDoc``, a ``ranx.Run``."""
type Runs = Run | Sequence[Run] | Mapping[str, Run]
"""A run, several, or names and their runs."""

LONGEST_NAME = 200
"""Bytes; a file system takes 255 with the ending."""
_MTEB = "mteb_model_meta"
"""A key of the predictions that MTEB writes; the others are subsets, of splits."""


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


def ranking(frame: pl.DataFrame) -> pl.DataFrame:
    """:func:`eval_kit.runs.rows.lines` by query and, within it, as trec_eval orders them, with ``rank`` from 1."""
    order = ["query", "score", "passage_id"]
    first = pl.col("row").min().over("query_id")
    return (
        frame.with_row_index("row")
        .with_columns(query=first)
        .sort(order, descending=[False, True, True])
        .with_columns(rank=pl.int_range(1, pl.len() + 1).over("query"))
    )


def write(frame: pl.DataFrame, path: Path, tag: str) -> None:
    """Write lines as a TREC file; blanks in the tag become hyphens. Ids with blanks need tabs between the columns."""
    constants = {"q0": pl.lit("Q0"), "tag": pl.lit("-".join(tag.split()) or "run")}
    columns = ["query_id", "q0", "passage_id", "rank", "score", "tag"]
    has_blanks = any(frame[column].str.contains(" ", literal=True).any() for column in ("query_id", "passage_id"))
    frame.with_columns(**constants).select(columns).write_csv(
        path, include_header=False, separator="\t" if has_blanks else " ", quote_style="never"
    )


def _with_names(runs: Runs) -> list[tuple[str | None, Run]]:
    """Each run with its name; a path that has none is known by its own."""
    if isinstance(runs, Mapping) and _MTEB in runs:
        subsets = {subset: splits for subset, splits in runs.items() if subset != _MTEB}
        runs = {f"{subset}.{split}": scores for subset in subsets for split, scores in subsets[subset].items()}
        runs = runs if len(runs) > 1 else next(iter(runs.values()), {})
    if isinstance(runs, Mapping) and not _is_one_run(runs):
        for name in runs:
            _check_name(name)
        return list(runs.items())
    run_list: list[Run] = [runs]
    if isinstance(runs, Sequence) and not isinstance(runs, str | bytes):
        run_list = [runs] if runs and all(map(rows.is_row, runs)) else list(runs)
    names = ["run"] if len(run_list) == 1 else [f"run{number}" for number in range(1, len(run_list) + 1)]
    return [(None if isinstance(run, str | PathLike) else name, run) for name, run in zip(names, run_list, strict=True)]


def _is_one_run(runs: Mapping[str, Any]) -> bool:
    """Whether a mapping is one run, with passages inside its values, not names and runs (which may be empty)."""
    if rows.is_columns(runs):
        return True
    values = list(runs.values())
    if values and all(isinstance(value, list | tuple) for value in values):
        first = next((item for value in values for item in value), None)
        if rows.is_row(first):  # with the query's id: a run by name, unless each is called by its query
            return all(value and rows.query_of(value[0]) == str(name) for name, value in runs.items())
        return first is not None and not hasattr(first, "columns")
    passages = [value for value in values if isinstance(value, Mapping)]
    return (
        len(passages) == len(runs)
        and (any(passages) or not runs)
        and not any(map(rows.is_columns, passages))
        and not any(isinstance(score, Mapping | list | tuple) for scores in passages for score in scores.values())
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
            with open_file(source) as content, path.open("wb") as copy:
                shutil.copyfileobj(content, copy)
        return path, str(source)
    frame = rows.lines(name, run)
    write(frame if "rank" in frame.columns else ranking(frame).sort("row"), path, name)
    return path, name


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip(". "):
        raise UserError(f"{name!r} is no name of a run; choose a text")
    if "/" in name or not name.isprintable():
        raise UserError(f"the run's name {name[:LONGEST_NAME]!r} holds a slash or control characters; choose another")
    if len(name.encode()) > LONGEST_NAME:
        raise UserError(f"the run's name {name[:40]!r}… has more than {LONGEST_NAME} bytes; choose another")


def _in_python(message: str) -> str:
    """A command's message, its options called as Python's parameters are."""
    message = message.replace("--allow-missing", "allow_missing=True")
    return re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), message)
