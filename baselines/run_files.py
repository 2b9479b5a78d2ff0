"""Write runs: six columns, whole or not at all."""

from collections.abc import Iterable
from pathlib import Path

from eval_kit import atomic


def write(rows: Iterable[tuple[str, str, int, float]], path: Path, tag: str) -> None:
    """Write ``(query id, passage id, rank, score)`` rows as a TREC run; scores keep every digit they have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{query} Q0 {passage} {rank} {score!r} {tag}\n" for query, passage, rank, score in rows)
    atomic.write_text(path, "".join(lines))
