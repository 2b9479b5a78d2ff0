"""Files and folders that are replaced whole or not at all: written elsewhere, flushed, renamed.

They are written in a folder beside the output, ``.<name>.<32 digits>.part``, which holds a lock called :data:`MARK`.
Only folders with that mark are ever cleared away, and only if no process holds the lock any longer.
"""

import errno
import glob
import io
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from eval_kit.errors import UserError, disk_errors
from eval_kit.files.opening import is_file, is_folder

if TYPE_CHECKING:
    import polars as pl
    from filelock import BaseFileLock

MARK = ".ms-marco-shift"
_OLD, _NEW = "old", "new"
WINDOWS = os.name == "nt"


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, so that a reader sees the old content or the new, never a part.

    A lone surrogate, as in a file name that is not UTF-8, is written as JSON escapes it.

    Raises:
        UserError: the folder does not exist, cannot be written, or the disk is full.
    """
    with disk_errors(path), whole(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8 to ``path``, each with a newline, one by one; whole or not at all.

    Raises:
        UserError: the folder does not exist, cannot be written, or the disk is full.
    """
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


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """The name of a temporary file beside ``path``, for the block to write; it replaces ``path`` when the block ends.

    A block that fails leaves ``path`` as it was, and nothing beside it; the next call removes what a kill has left
    there. If two processes write one file, the last to end wins. Where ``path`` is a link, the file that it leads to is
    replaced; a device or a pipe is not replaced, but written to.
    """
    kind = _kind(path)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind and not stat.S_ISREG(kind):
        with tempfile.TemporaryDirectory() as elsewhere:
            part = Path(elsewhere, "part")
            yield part
            with part.open("rb") as content, path.open("wb") as device:
                shutil.copyfileobj(content, device)
        return
    path = Path(os.path.realpath(path))
    with _work(path) as work:
        yield work / _NEW
        _sync(work / _NEW)
        (work / _NEW).replace(path)


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """An empty folder, for the block to fill; it replaces ``path`` when the block ends.

    A block that fails leaves ``path`` as it was. So does a kill, except between the two renames, when the old folder
    is left elsewhere: the next call for ``path``, or :func:`restore`, brings it back. Where two processes may write
    one folder, both must hold its :func:`lock`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _work(path) as work:
        (work / _NEW).mkdir()
        yield work / _NEW
        for path_inside in [*(work / _NEW).rglob("*"), work / _NEW]:
            _sync(path_inside)
        if path.exists():
            (work / _OLD).mkdir()
            path.rename(work / _OLD / path.name)
        (work / _NEW).rename(path)


def clear_abandoned(folder: Path, name: str = "*") -> None:
    """Remove what killed writers of files and folders called ``name`` have left in ``folder``; old folders come back.

    What is written at the moment, or has another form or no mark, stays.
    """
    from filelock import FileLock, Timeout

    for work in folder.glob(f".{name}.{'[0-9a-f]' * 32}.part"):
        if not is_file(work / MARK):
            with suppress(OSError):
                work.rmdir()  # killed before it was marked; fails unless the folder is empty
            continue
        with suppress(OSError, Timeout, NotImplementedError):
            lock = FileLock(work / MARK)
            lock.acquire(timeout=0)
            lock.release()
            _clear(work)


def restore(path: Path) -> None:
    """Bring back the folder ``path`` if a kill in :func:`folder` has left only its old state, elsewhere."""
    name = glob.escape(_short(path))
    if not is_folder(path) and any(path.parent.glob(f".{name}.*.part/{_OLD}/{glob.escape(path.name)}")):
        with lock(path):
            clear_abandoned(path.parent, name)


def lock(path: Path) -> "BaseFileLock":
    """The lock to hold while replacing ``path``: a file beside it, which is never removed.

    Raises:
        UserError: ``path`` has no name: after the replacement, its user would be in a folder that is gone.
    """
    from filelock import FileLock

    if path.name in ("", ".."):
        raise UserError(f"{path}: this folder is replaced as a whole; go to its parent and name it from there")
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"))


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that a rename publishes it complete."""
    if WINDOWS and path.is_dir():  # which cannot be opened there
        return
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kind(path: Path) -> int:
    """The mode of what ``path`` leads to; 0 if there is nothing yet."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


def _short(path: Path) -> str:
    return path.name[:50]  # a file system takes 255 bytes, 4 for a character


@contextmanager
def _work(path: Path) -> Iterator[Path]:
    """A new folder beside ``path`` to write in, marked and locked until the block ends."""
    from filelock import FileLock, Timeout

    clear_abandoned(path.parent, glob.escape(_short(path)))
    work = path.with_name(f".{_short(path)}.{uuid.uuid4().hex}.part")
    lock = FileLock(work / MARK)
    try:
        while not is_file(work / MARK):  # another process may take it for abandoned before it is marked
            work.mkdir(exist_ok=True)
            with suppress(FileNotFoundError, Timeout, NotImplementedError):  # a disk without locks
                lock.acquire(timeout=1)
        yield work
    finally:
        lock.release()
        _clear(work)


def _clear(work: Path) -> None:
    for old in (work / _OLD).glob("*"):
        if not work.with_name(old.name).exists():
            old.rename(work.with_name(old.name))
    for entry in (work / _OLD, work / _NEW, work):  # the mark goes last
        shutil.rmtree(entry, ignore_errors=True)
