"""Save a run that is in memory as the file that the commands read."""

import gzip
from os import PathLike
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.files.endings import run_name
from eval_kit.files.packed import zstd
from eval_kit.runs.given import GivenRun, Run
from eval_kit.runs.ranks import JUDGED_SCHEMA, rank_judged
from eval_kit.runs.rows import lines
from eval_kit.runs.writer import ranking, write_lines

_UNREADABLE = (".bz2", ".xz", ".lz4", ".zip", ".7z", ".parquet", ".parq", ".json", ".csv")
"""Endings of files that a run would not be, as it is text, only packed by gzip or zstd."""


def write_run(run: GivenRun, path: str | PathLike[str]) -> None:
    """Write a run as the TREC file that the commands read: its lines by query and rank, its name as their tag.

    Args:
        run: a dictionary, dataframe or another tool's run (:mod:`eval_kit.runs.given`).
        path: the file, packed if its name ends in ``.gz`` or ``.zst``; an existing one is replaced. Name it
            ``<system>.<shift>.<held-out>.trec`` for a grid.

    Raises:
        UserError: ``run`` is not a run, no command would read it, or the file cannot be written.
    """
    path = Path(path)
    if isinstance(run, str | PathLike):
        raise UserError(f"{run} is a file already", do="Copy it")
    if "\0" in str(path):
        raise UserError(f"The name of a file cannot contain a zero byte, as {str(path)!r} does")
    if path.suffix.lower() in _UNREADABLE:
        raise UserError(
            f"A run cannot be written as {path.name}", do="Let the name end in .trec, .trec.gz or .trec.zst"
        )
    frame = lines("run", run)
    rank_judged(Run(None, "run", "run", lines=frame), pl.DataFrame(schema=JUDGED_SCHEMA))  # for what it refuses
    with disk_errors(path), atomic.whole(path) as part:
        write_lines(ranking(frame), part, run_name(path))
        if path.suffix.lower() == ".gz":
            part.write_bytes(gzip.compress(part.read_bytes(), mtime=0))
        elif path.suffix.lower() == ".zst":
            part.write_bytes(zstd().compress(part.read_bytes()))
