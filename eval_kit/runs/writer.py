"""Write runs: six columns, whole or not at all, in constant memory."""

import os
from collections.abc import Iterable
from pathlib import Path

from eval_kit.errors import UserError


def write(rows: Iterable[tuple[str, str, int, float]], path: Path, tag: str) -> None:
    """Write ``(query id, passage id, rank, score)`` rows as a TREC run; scores keep every digit they have.

    Raises:
        UserError: the file cannot be written; an older one stays as it was.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{query} Q0 {passage} {rank} {score!r} {tag}\n" for query, passage, rank, score in rows)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
