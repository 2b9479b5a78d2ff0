"""faiss indexes on the disk."""

from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files import atomic


def write(index: Any, path: Path) -> None:
    """Write an index, whole or not at all.

    Raises:
        UserError: the disk is full.
    """
    import faiss

    try:
        with atomic.whole(path) as part:
            faiss.write_index(index, str(part))
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise UserError(f"{path}: the faiss index cannot be written: {why}") from error
