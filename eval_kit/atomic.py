"""Files that are written whole or not at all: temporary name, fsync, rename."""

import os
import tempfile
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
