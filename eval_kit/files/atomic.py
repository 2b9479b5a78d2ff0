"""Files and folders that are replaced whole or not at all: a temporary name, fsync, rename."""

import errno
import fcntl
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
from typing import TYPE_CHECKING, BinaryIO

from eval_kit.errors import UserError
from eval_kit.files.opening import is_file

if TYPE_CHECKING:
    import polars as pl
    from filelock import BaseFileLock


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, so that a reader sees the old content or the new, never a part.

    A lone surrogate, as in a file name that is not UTF-8, is written as JSON escapes it.

    Raises:
        UserError: the folder does not exist, cannot be written, or the disk is full.
    """
    try:
        with whole(path) as part:
            part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8 to ``path``, each with a newline, one by one; whole or not at all.

    Raises:
        UserError: the folder does not exist, cannot be written, or the disk is full.
    """
    try:
        with whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_parquet(path: Path, frame: "pl.DataFrame") -> None:
    """Write a table to ``path``, whole or not at all.

    Raises:
        OSError: the disk is full, for which polars itself would raise an error of computation.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    with whole(path) as part:
        part.write_bytes(buffer.getbuffer())


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
    name = path.name[:50]  # a file system takes 255 bytes, 4 for a character
    clear_abandoned(path.parent, glob.escape(name))
    part = path.with_name(f".{name}.{uuid.uuid4().hex}.part")
    try:
        with _locked(part):
            yield part
            _sync(part)
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def clear_abandoned(folder: Path, name: str = "*") -> None:
    """Remove the temporary files in ``folder`` whose writers were killed: nobody holds their locks any longer."""
    for part in filter(is_file, folder.glob(f".{name}.{'[0-9a-f]' * 32}.part")):
        with suppress(OSError), part.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    """An empty folder beside ``path``, for the block to fill; it replaces ``path`` when the block ends.

    A block that fails leaves ``path`` as it was. So does a kill, except between the two renames, when the old folder
    is left under another name: the next call for ``path``, or :func:`restore`, brings it back. Where two processes
    may write one folder, both must hold its :func:`lock`.
    """
    staging, aside = _staging(path), _aside(path)
    _bring_back(path)
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(parents=True)
        yield staging
        sync_tree(staging)
        if path.exists():
            path.rename(aside)
        staging.rename(path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        _bring_back(path)


def restore(path: Path) -> None:
    """Bring back the folder ``path`` if a kill in :func:`folder` has left only its old state, under another name."""
    if not path.exists() and _aside(path).exists():
        with lock(path):
            _bring_back(path)


def lock(path: Path) -> "BaseFileLock":
    """The lock to hold while replacing ``path``: a file beside it, which is never removed."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"))


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below ``folder`` to the disk, so that a rename publishes complete files."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
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


def _locked(path: Path) -> BinaryIO:
    """A new file, locked until it is closed; another process may take it for abandoned before it is locked."""
    while True:
        file = path.open("xb")
        with suppress(OSError):  # a file system without locks, where nothing is cleared either
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return file
        file.close()


def _bring_back(path: Path) -> None:
    aside = _aside(path)
    if aside.exists() and not path.exists():
        aside.rename(path)
    shutil.rmtree(aside, ignore_errors=True)


def _staging(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")
