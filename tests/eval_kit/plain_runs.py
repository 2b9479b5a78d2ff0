"""The least of a run."""

from eval_kit.release import Release


def plain_run(release: Release, *test_sets: str) -> str:
    """The lines of a run that finds nothing for any query of these test sets."""
    queries = sorted({query for name in test_sets for query in release.test_sets[name].queries})
    return "".join(f"{query} Q0 p 1 1.0 t\n" for query in queries)
