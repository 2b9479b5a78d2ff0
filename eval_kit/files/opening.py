"""The one way to open files from outside: regular files only, which end and can be read twice."""

import os
import stat
from io import BufferedReader
from pathlib import Path

from eval_kit.errors import UserError

MOST_GROWTH = 100
"""Unpacked bytes for each packed byte: text of runs packs 5 to 10 times, zeros a thousand times."""
SMALL_BYTES = 10 << 20
"""Up to this size unpacked, no growth is suspicious."""


def open_file(path: Path, hint: str = "") -> BufferedReader:
    """The file, open to read bytes.

    Args:
        path: the file.
        hint: added to the sentence about a file that cannot be read.

    Raises:
        UserError: nothing there, a loop of links, a folder, a pipe, a device, or a file that may not be read.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "folder" if stat.S_ISDIR(mode) else "pipe or device"
            raise UserError(f"{path}: is a {what}, expected a file")
        return path.open("rb")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read: {why}{hint}") from error


def is_file(path: Path) -> bool:
    """Whether there is a regular file; unlike ``Path.is_file``, raises no error on any name."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether there is a folder; raises no error on any name."""
    return os.path.isdir(path)  # noqa: PTH112
