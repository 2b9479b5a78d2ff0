"""Folders of runs: whoever names one means the runs in it."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files.opening import is_folder

ENDINGS = (".trec", ".trec.gz", ".trec.zst")


def opened(runs: Iterable[Any]) -> list[Any]:
    """The runs, with each path of a folder replaced by the runs that lie in it, by name.

    Raises:
        UserError: a folder without runs.
    """
    listed: list[Any] = []
    for run in runs:
        if not isinstance(run, str | PathLike) or not is_folder(Path(run)):
            listed.append(run)
            continue
        files = sorted(file for file in Path(run).iterdir() if file.name.endswith(ENDINGS))
        if not files:
            raise UserError(f"{run}: is a folder without runs; their names end in {' or '.join(ENDINGS)}")
        listed += files
    return listed
