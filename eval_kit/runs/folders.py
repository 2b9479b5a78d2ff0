"""Folders of runs: whoever names one means the runs in it."""

import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files.opening import is_folder
from eval_kit.runs.names import run_name

ENDINGS = (".trec", ".trec.gz", ".trec.zst")


def run_files(runs: Iterable[Any]) -> list[Any]:
    """The runs, with each path of a folder replaced by the runs that lie in it, by name.

    Warns of files in it that may be runs by their names, such as ``.tsv``.

    Raises:
        UserError: a folder without runs.
    """
    paths: list[Any] = []
    for run in runs:
        if not isinstance(run, str | PathLike) or not is_folder(Path(run)):
            paths.append(run)
            continue
        inside = sorted(Path(run).iterdir())
        files = [file for file in inside if file.name.lower().endswith(ENDINGS)]
        if not files:
            raise UserError(f"{run}: is a folder without runs; their names end in {' or '.join(ENDINGS)}")
        others = [file.name for file in inside if not file.name.lower().endswith((*ENDINGS, ".ids.txt"))]
        if skips := [name for name in others if run_name(Path(name)) != name]:
            more = f" and {len(skips) - 1} more" if skips[1:] else ""
            warnings.warn(f"{run}: without {skips[0]}{more}, as runs in a folder end in .trec", stacklevel=2)
        paths += files
    return paths
