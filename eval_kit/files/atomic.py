"""Files and folders that are replaced whole or not at all: written beside the output, flushed, renamed.

``<name>`` is written as ``.<name>.part``, which the next write replaces if a kill has left it.
"""

import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eval_kit.errors import UserError, disk_errors
from eval_kit.files.opening import DESCRIPTORS

if TYPE_CHECKING:
    import polars as pl
    from filelock import BaseFileLock


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, so that a reader sees the old content or the new, never a part.

    A lone surrogate, as in a file name that is not UTF-8, is written as JSON escapes it.
    """
    with disk_errors(path), whole(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def write_inside(folder: Path, name: str, text: str) -> None:
    """Write ``text`` to a file of a folder that somebody else may have made: never through a link that is in it."""
    path = folder / name
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{path.parent} leads out of {folder}", do="Remove the link")
    with disk_errors(path), whole(path, through=False) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8 to ``path``, each with a newline, one by one; whole or not at all."""
    with disk_errors(path), whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def write_parquet(path: Path, frame: "pl.DataFrame") -> None:
    """Write a table to ``path``, whole or not at all.

    Raises:
        OSError: the disk is full, for which polars itself would raise an error of computation.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    with whole(path) as part:
        part.write_bytes(buffer.getbuffer())


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Make ``target`` a second name of a file, or a copy where links are impossible, as to another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


_WRITABLE = 0o222
_A_FILE, _A_DAY = 60.0, 86_400.0
"""Seconds to wait for who writes the same file, and for who does the same work."""


@contextmanager
def whole(path: Path, through: bool = True) -> Iterator[Path]:
    """The name of a temporary file beside ``path``, for the block to write; it replaces ``path`` when the block ends.

    A block that fails leaves ``path`` as it was, and nothing beside it. If two processes write one file, the last to
    begin wins. Where ``path`` is a link, the file that it leads to is replaced; if not ``through`` links, the link.
    A file keeps its permissions, and one that nobody may write is not replaced.
    What this process has open, such as ``/dev/stdout`` or ``/dev/fd/63``, which may be a pipe, is written to when the
    block ends.
    """
    if str(path).startswith(DESCRIPTORS):
        with _through(path) as part:
            yield part
        return
    path = path.resolve() if through else path.parent.resolve() / path.name
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):  # a lock would make the folder
        what = "It is not a file" if path.exists() else "Its folder does not exist"
        raise UserError(f"Could not write {path}", what)
    mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() and not path.is_symlink() else None
    if mode is not None and not mode & _WRITABLE:
        raise UserError(f"Could not write {path}", "It is read-only", "Name another file, or make it writable")
    part = path.with_name(f".{path.name}.part")
    with file_lock(part.with_name(f"{part.name}.lock"), _A_FILE) as lock:
        try:
            part.unlink(missing_ok=True)  # it may be another name of a file: link_or_copy
            yield part
            if mode is not None and part.stat().st_nlink == 1:  # else of that other name too
                part.chmod(mode)
            _sync(part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
            with suppress(OSError):  # Windows keeps an open file
                Path(lock.lock_file).unlink()


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """An empty folder, for the block to fill; it replaces ``path`` when the block ends.

    A block that fails leaves ``path`` as it was. So does a kill, except between the two renames, when the old folder
    is ``.<name>.replaced``: the next call brings it back. Where two processes may write one folder, both must hold its
    :func:`lock`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part, old = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.replaced")
    _clear(path, part, old)
    try:
        part.mkdir()
        yield part
        for path_inside in [*part.rglob("*"), part]:
            _sync(path_inside)
        if path.exists():
            path.rename(old)
        part.rename(path)
    finally:
        _clear(path, part, old)


def _clear(path: Path, part: Path, old: Path) -> None:
    if old.exists() and not path.exists():
        old.rename(path)
    for left in (part, old):
        shutil.rmtree(left, ignore_errors=True)


def lock(path: Path) -> "BaseFileLock":
    """The lock to hold while replacing ``path``: a file beside it, which is never removed."""
    if path.name in ("", ".."):
        raise UserError(
            f"The kit replaces {path} as a whole, and this is that folder", do="Run the command from its parent folder"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return file_lock(path.with_name(f".{path.name}.lock"))


def file_lock(path: Path, seconds: float = _A_DAY, wait: bool = True) -> "BaseFileLock":
    """The lock that is this file.

    ``wait``: else who does not get it at once gets a ``Timeout`` of filelock, as after these seconds.

    Raises:
        OSError: the file cannot be made, for which filelock itself would wait.
    """
    from filelock import FileLock

    # through a link that somebody else has placed, the file could be anywhere
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o666))
    return FileLock(path, timeout=seconds, blocking=wait)


@contextmanager
def _through(path: Path) -> Iterator[Path]:
    """A temporary file, for the block to write, whose bytes then go to what this process has open as ``path``."""
    descriptor = {"stdout": 1, "stderr": 2}.get(path.name) or int(path.name if path.name.isdecimal() else -1)
    with tempfile.TemporaryDirectory() as elsewhere:
        part = Path(elsewhere, "part")
        yield part
        sys.stdout.flush()
        with part.open("rb") as file, os.fdopen(os.dup(descriptor), "wb") as out:
            shutil.copyfileobj(file, out)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that a rename publishes it complete."""
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
