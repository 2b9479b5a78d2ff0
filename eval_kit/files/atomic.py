"""Files that are written whole or not at all: temporary name, fsync, rename."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eval_kit.errors import UserError


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, so that a reader sees the old content or the new, never a part.

    Raises:
        UserError: the folder does not exist, cannot be written, or the disk is full.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` to write; it takes the name once the block has ended and it is on the disk.

    The temporary name is always the same, so that what a killed process leaves is written over; two processes that
    write one file need a lock. A block that fails leaves ``path`` as it was, and nothing beside it.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below ``folder`` to the disk, so that a rename publishes complete files."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
