"""The one way to open files from outside: regular files, which end, and pipes that this process was given."""

import os
import shutil
import stat
import tempfile
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError

DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc/self/fd/")
"""How names of what this process has open begin."""

_POINTER = b"version https://git-lfs"


def open_file(path: Path) -> BufferedReader:
    """The file, open to read bytes; it can be read twice, also what comes through a pipe (``-``, ``/dev/fd/63``)."""
    try:
        if _is_own_pipe(path):
            return Path(_kept(str(_source(path))).name).open("rb")
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "folder" if stat.S_ISDIR(mode) else "pipe or device"
            raise UserError(f"{path} is a {what}, not a file")
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise UserError(f"Could not read {path}: {error.strerror if isinstance(error, OSError) else error}") from error


def is_file(path: Path) -> bool:
    """Whether there is a regular file; unlike ``Path.is_file``, raises no error on any name."""
    return os.path.isfile(path)  # noqa: PTH113


def is_input(path: Path) -> bool:
    """Whether :func:`open_file` would take it: a regular file, or a pipe of this process."""
    return is_file(path) or _is_own_pipe(path)


def is_folder(path: Path) -> bool:
    """Whether there is a folder; raises no error on any name."""
    return os.path.isdir(path)  # noqa: PTH112


def _source(path: Path) -> Path:
    return Path("/dev/stdin") if str(path) == "-" else path


def _is_own_pipe(path: Path) -> bool:
    source = str(_source(path))
    return source.startswith(DESCRIPTORS) and os.path.exists(source) and not stat.S_ISCHR(os.stat(source).st_mode)  # noqa: PTH110, PTH116


def check_no_pointer(path: Path, start: bytes) -> None:
    """Refuse a file that begins as Git LFS writes what stands for one, in a clone made without it."""
    if start.startswith(_POINTER):
        raise UserError(f"{path} is a Git LFS pointer, not the file", do="Get the file with: git lfs pull")


@cache
def _kept(source: str) -> Any:
    """A temporary file, until the end of the process, of what comes through a pipe."""
    kept = tempfile.NamedTemporaryFile()  # noqa: SIM115
    with Path(source).open("rb") as pipe:
        shutil.copyfileobj(pipe, kept)
    kept.flush()
    return kept
