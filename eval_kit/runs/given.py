"""Runs as people hand them over, each taken once: where it lies, what it is called, and what its name says.

A run is a path, ``{query: {passage: score}}``, ``{query: [(passage, score)]}``, what ``ir_measures.read_trec_run``
gives, a ``ranx.Run``, MTEB's predictions, a polars (lazy too), pandas or Arrow table, or rows: a list, generator or
Hugging Face Dataset of dictionaries. Columns may be called as usual tools call them, in any pairing: ``query_id``,
``qid``, ``topic`` …; ``passage_id``, ``doc_id``, ``docno``, ``corpus-id`` … (:mod:`eval_kit.runs.rows`); ``score``.
Several runs are a list, or a dictionary of names and runs; a folder stands for the runs in it. In any form a run must
follow the rules for run files, and it scores exactly as the file would.
"""

import io
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError, parameter
from eval_kit.files.packed import Feed
from eval_kit.runs import folders, rows
from eval_kit.runs.names import RunName, cell_of, run_name
from eval_kit.runs.reader import read_pieces
from eval_kit.runs.writer import ranking, write_lines

type Scored = Mapping[str, Mapping[str, float]]
type GivenRun = str | PathLike[str] | Scored | Any
"""A run in any of the forms above."""
type GivenRuns = GivenRun | Sequence[GivenRun] | Mapping[str, GivenRun]
"""A run, several, or names and their runs."""

LONGEST_NAME = 200
"""Bytes; a file system takes 255 with the ending."""
_ROWS_AT_ONCE = 200_000
"""Of a run in memory: about what a piece of a file holds (:data:`eval_kit.runs.reader._PIECE_BYTES`)."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run, known by this object.

    Attributes:
        path: the file; None for a run in memory.
        own_name: the file name without endings, or the name that it was given.
        name: what results call it: its own name, after as much of its path as tells it from others given with it.
        cell: the cell of a grid that its own name, or whoever gave it, says it is of; None outside a grid.
        lines: of a run in memory, as :func:`eval_kit.runs.rows.lines`.
    """

    path: Path | None
    own_name: str
    name: str
    cell: RunName | None = None
    lines: pl.DataFrame | None = None

    def __str__(self) -> str:
        """What messages call it: its path, or its name."""
        return self.own_name if self.path is None else str(self.path)

    def pieces(self, feed: Feed | None = None, tags: list[str] | None = None) -> Generator[pl.DataFrame]:
        """Its rows, as :func:`eval_kit.runs.reader.read_pieces`; of a run in memory ``feed`` takes what a file holds.

        Raises:
            RunError: what is wrong with the file.
        """
        if self.path is not None:
            yield from read_pieces(self.path, feed=feed, tags=tags)
        elif self.lines is not None:
            if feed is not None:
                text = io.BytesIO()
                write_lines(ranking(self.lines), text, self.own_name)
                feed(text.getvalue())
            stated = self.lines.rename({"rank": "stated_rank"}, strict=False)
            if "stated_rank" not in stated.columns:
                stated = stated.with_columns(stated_rank=pl.lit(None, pl.Int64))
            yield from stated.iter_slices(_ROWS_AT_ONCE)


def take(**groups: GivenRuns) -> list[list[Run]]:
    """The runs of each group, each file taken once; runs that were taken already stay as they are.

    Args:
        groups: by what the caller's parameter is called.
    """
    files: dict[Path, Run] = {}
    taken = []
    for number, (group, given) in enumerate(groups.items()):
        taken.append(list(_taken(given, group, "run" if not number else group.removesuffix("s"), files)))
        for run, times in Counter(taken[-1]).items():
            if times > 1:
                raise UserError(f"The run {run} was given twice")
    names = _names(list(dict.fromkeys(chain.from_iterable(taken))))
    return [[names[run] for run in group] for group in taken]


def _taken(given: GivenRuns, group: str, unnamed: str, files: dict[Path, Run]) -> Generator[Run]:
    for name, run in rows.apart(given, unnamed):
        if isinstance(run, Run):
            yield run
        elif isinstance(run, str | PathLike):
            with _named(group):
                _check_name(name)
            for path in folders.run_files(Path(str(run))) if name is None else [Path(str(run))]:
                own_name = name or _text(run_name(path))
                if name or path not in files:
                    files[path] = Run(path, own_name, own_name, cell_of(own_name))
                yield files[path]
        else:
            with _named(group):
                _check_name(name)
                lines = rows.lines(str(name), run)
            yield Run(None, str(name), str(name), cell_of(str(name)), lines)


def _names(runs: Sequence[Run]) -> dict[Run, Run]:
    """Each run, under a name that no other has."""
    names = {run: run.name for run in runs}
    folders_of = {run: run.path.parent.parts if run.path else () for run in runs}
    for depth in range(1, 1 + max(map(len, folders_of.values()), default=0)):
        times = Counter(names.values())
        for run in runs:
            if times[names[run]] > 1:
                names[run] = _text("/".join((*folders_of[run][-depth:], run.own_name)).replace("//", "/"))
    times = Counter(names.values())
    for run, name in names.items():
        names[run] = name if times[name] == 1 else _text(str(run))
    return {run: run if run.name == name else replace(run, name=name) for run, name in names.items()}


def _text(name: str) -> str:
    """A file's name as text; bytes that are no UTF-8, which polars and pages cannot hold, are written out."""
    return name.encode("utf-8", "backslashreplace").decode()


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors of what stands in no file say in which parameter it was given."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{parameter(name)}: {error}") from None


def _check_name(name: object) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not name.strip(". "):
        raise UserError(f"The name of a run is a text, not {name!r}")
    if "/" in name or not name.isprintable():
        raise UserError(
            f"The run's name {name[:LONGEST_NAME]!r} contains a slash or control characters", do="Choose another"
        )
    if len(name.encode()) > LONGEST_NAME:
        raise UserError(f"The run's name {name[:40]!r}… has more than {LONGEST_NAME} bytes", do="Choose another")
