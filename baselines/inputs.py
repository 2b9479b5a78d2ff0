"""What a system is asked: the queries of a release's test sets."""

import polars as pl

from eval_kit.release import Release


def test_queries(release: Release) -> pl.DataFrame:
    """``query_id`` and ``text`` of every query of a test set, each once."""
    tables = {(one["config"], one["split"]) for one in release.manifest["test_sets"]}
    texts = [release.table(*table).select("query_id", "text") for table in sorted(tables)]
    return pl.concat(texts).unique("query_id", maintain_order=True)
