"""Runs of which one knows what they find."""

from collections.abc import Iterable
from pathlib import Path

from eval_kit.release import Release


def plain_run(release: Release, *test_sets: str) -> str:
    """The lines of a run that finds nothing for any query of these test sets."""
    queries = sorted({query for name in test_sets for query in release.test_sets[name].queries})
    return "".join(f"{query} Q0 p 1 1.0 t\n" for query in queries)


def ranked_run(path: Path, found: Iterable[tuple[str, str, int]], depth: int = 10) -> Path:
    """Write a run of so many passages a query: one at a rank, if that is no deeper, and such as nobody judged."""
    lines = []
    for query, passage, rank in found:
        for at in range(1, depth + 1):
            lines.append(f"{query} Q0 {passage if at == rank else f'x{at}'} {at} {-at} t\n")
    path.write_text("".join(lines))
    return path
