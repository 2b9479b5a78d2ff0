"""Runs that are dictionaries or dataframes, written as TREC files for the one strict reader."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError

type Scores = Mapping[str, Mapping[str, float]]
type Run = str | PathLike[str] | Scores | Any
"""A run: a path, ``{query: {passage: score}}``, or a polars or pandas dataframe with one of :data:`COLUMNS`."""
type Runs = Run | Sequence[Run] | Mapping[str, Run]
"""A run, several, or names and their runs."""

COLUMNS = (
    ("query_id", "passage_id", "score"),
    ("query_id", "doc_id", "score"),
    ("qid", "docno", "score"),
    ("query", "passage", "score"),
)
"""The columns of a dataframe: the kit's, ir_measures', PyTerrier's and TREC's; ``rank`` may be there too."""


@contextmanager
def as_files(runs: Runs) -> Iterator[dict[Path, str]]:
    """Write the runs that are not files to a temporary folder.

    Yields:
        The file of each run, and what it is called in messages: its path, or its name (``run``, or ``run1`` and so on
        where none was given).

    Raises:
        UserError: what is neither a path, a dictionary nor a dataframe with the columns of a run; a name with a slash.
            Errors raised in the block name the runs as the caller does.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = dict(_file(name, run, Path(folder)) for name, run in _named(runs))
        try:
            yield files
        except UserError as error:
            message = str(error)
            for path, shown in files.items():
                message = message.replace(str(path), shown)
            raise type(error)(message) from None


def _named(runs: Runs) -> list[tuple[str | None, Run]]:
    """Each run with its name; a path that has none is known by its own."""
    if isinstance(runs, Mapping) and not _is_scores(runs):
        return list(runs.items())
    listed = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    unnamed = ["run"] if len(listed) == 1 else [f"run{number}" for number in range(1, len(listed) + 1)]
    return [(None if isinstance(run, str | PathLike) else name, run) for name, run in zip(unnamed, listed, strict=True)]


def _is_scores(runs: Mapping[str, Any]) -> bool:
    """Whether a mapping is one run, with numbers inside its values, rather than names and runs."""
    passages = [value for value in runs.values() if isinstance(value, Mapping)]
    return len(passages) == len(runs) and not any(
        isinstance(score, Mapping) for scores in passages for score in scores.values()
    )


def _file(name: str | None, run: Run, folder: Path) -> tuple[Path, str]:
    if name is None:
        return Path(str(run)), str(run)
    if "/" in name or not name.isprintable():
        raise UserError(f"the run's name {name!r} holds a slash or control characters; choose another")
    path = folder / f"{name}.trec"
    if isinstance(run, str | PathLike):
        path.symlink_to(Path(run).resolve())
        return path, str(run)
    frame = _from_scores(run) if isinstance(run, Mapping) else _from_frame(name, run)
    frame.select("query_id", q0=pl.lit("Q0"), passage_id="passage_id", rank="rank", score="score").with_columns(
        tag=pl.lit("run")
    ).write_csv(path, include_header=False, separator=" ", quote_style="never")
    return path, name


def _from_scores(run: Scores) -> pl.DataFrame:
    rows = [(query, passage, score) for query, passages in run.items() for passage, score in passages.items()]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return _lines(*(pl.Series(values, strict=False) for values in columns))


def _from_frame(name: str, run: Any) -> pl.DataFrame:
    present = set(getattr(run, "columns", ()))
    names = next((columns for columns in COLUMNS if present.issuperset(columns)), None)
    if names is None:
        expected = ", or ".join(", ".join(columns) for columns in COLUMNS)
        what = f"its columns are {', '.join(map(str, run.columns))}" if present else f"it is a {type(run).__name__}"
        raise UserError(f"{name}: expected a path, {{query: {{passage: score}}}} or a dataframe of {expected}; {what}")
    columns = [run[column] for column in (*names, *(["rank"] if "rank" in present else []))]
    return _lines(*(column if isinstance(column, pl.Series) else pl.Series(column.tolist()) for column in columns))


def _lines(queries: pl.Series, passages: pl.Series, scores: pl.Series, ranks: pl.Series | None = None) -> pl.DataFrame:
    """The lines of a TREC run; what is not a number stays as it is, for the reader to refuse."""
    number = scores.cast(pl.Float64) if scores.dtype.is_numeric() else scores.cast(pl.String)
    rank = pl.zeros(len(scores), pl.Int64, eager=True) if ranks is None else ranks
    columns = {"query_id": queries.cast(pl.String), "passage_id": passages.cast(pl.String), "score": number}
    return pl.DataFrame({**columns, "rank": rank})
