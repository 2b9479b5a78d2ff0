"""Folders of runs: whoever names one means the runs in it."""

import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files.endings import ENDINGS, PACKED_ENDINGS, run_name
from eval_kit.files.opening import is_folder
from eval_kit.runs.reader import is_run


def run_files(runs: Iterable[Any]) -> list[Any]:
    """The runs, with each path of a folder replaced by the runs that lie in it, by name.

    A file ``*.trec`` is a run, and one with another of :data:`eval_kit.files.endings.ENDINGS` if it begins like one.
    Warns of the rest, once.

    Raises:
        UserError: a folder without runs.
    """
    paths: list[Any] = []
    sure = tuple(f".trec{packed}" for packed in ("", *PACKED_ENDINGS))
    for run in runs:
        if not isinstance(run, str | PathLike) or not is_folder(Path(run)):
            paths.append(run)
            continue
        files: list[Path] = []
        others: list[str] = []
        for file in sorted(Path(run).iterdir()):
            if not file.name.endswith(".ids.txt") and run_name(file) != file.name and not is_folder(file):
                if file.name.lower().endswith(sure) or is_run(file):
                    files.append(file)
                else:
                    others.append(file.name)
        if not files:
            raise UserError(f"{run}: is a folder without runs; their names end in {', '.join(ENDINGS)}, packed or not")
        if others:
            more = f" and {len(others) - 1} more" if others[1:] else ""
            warnings.warn(f"{run}: without {others[0]}{more}, which do not begin like a run", stacklevel=2)
        paths += files
    return paths
