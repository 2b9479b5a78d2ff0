"""Write runs: six columns, whole or not at all, in constant memory."""

from collections.abc import Iterable
from pathlib import Path

from eval_kit.errors import disk_errors
from eval_kit.files import atomic


def write(rows: Iterable[tuple[str, str, int, float]], path: Path, tag: str) -> None:
    """Write ``(query id, passage id, rank, score)`` rows as a TREC run; scores keep every digit they have.

    Blanks in the tag, which would be columns, become hyphens.

    Raises:
        UserError: the file cannot be written; an older one stays as it was.
    """
    tag = "-".join(tag.split())
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.whole(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{query} Q0 {passage} {rank} {score!r} {tag}\n" for query, passage, rank, score in rows)
