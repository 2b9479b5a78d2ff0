"""What a system reads from a release: its passages, and the queries of its test sets."""

from collections.abc import Iterator

import polars as pl

from eval_kit.errors import UserError
from eval_kit.release import Release


def passages(release: Release) -> Iterator[tuple[str, str]]:
    """``(passage id, text)`` of the collection: the release's own, else those of its ir_datasets collection.

    Raises:
        UserError: the ir_datasets collection cannot be had.
    """
    collection = release.manifest["collection"]
    if collection is None:
        yield from release.table("passages", "passages").iter_rows()
        return
    import ir_datasets

    try:
        for doc in ir_datasets.load(collection).docs_iter():
            yield doc.doc_id, doc.default_text()
    except Exception as error:  # ir_datasets lets its HTTP, tar and file errors through as they are
        raise UserError(f"the passages of ir_datasets {collection} cannot be had ({type(error).__name__})") from error


def test_queries(release: Release) -> pl.DataFrame:
    """``query_id`` and ``text`` of every query of a test set, each once."""
    tables = {(one["config"], one["split"]) for one in release.manifest["test_sets"]}
    texts = [release.table(*table).select("query_id", "text") for table in sorted(tables)]
    return pl.concat(texts).unique("query_id", maintain_order=True)
