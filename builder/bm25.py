"""BM25 by Lucene, through Pyserini."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from builder import lucene

K1 = 0.9
B = 0.4
BATCH = 2_000


def index(passages: Iterable[tuple[str, str]], folder: Path, threads: int = 2) -> None:
    """Index ``(passage id, text)`` pairs into ``folder``, replacing an index that stands there."""
    lucene.start()
    from pyserini.index.lucene import LuceneIndexer

    shutil.rmtree(folder, ignore_errors=True)
    indexer = LuceneIndexer(str(folder), threads=threads)
    batch: list[dict[str, str]] = []
    for passage_id, text in passages:
        batch.append({"id": passage_id, "contents": text})
        if len(batch) == BATCH:
            indexer.add_batch_dict(batch)
            batch = []
    indexer.add_batch_dict(batch)
    indexer.close()


def search(
    queries: Iterable[tuple[str, str]], folder: Path, depth: int = 1000, threads: int = 2
) -> Iterator[tuple[str, str, int, float]]:
    """Search for ``(query id, text)`` pairs.

    Yields:
        ``(query id, passage id, rank from 1, score)``, the queries in their order, each best first.
    """
    lucene.start()
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(folder))
    searcher.set_bm25(K1, B)
    pairs = list(queries)
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        hits = searcher.batch_search([text for _, text in batch], [one for one, _ in batch], k=depth, threads=threads)
        for query_id, _ in batch:
            for rank, hit in enumerate(hits.get(query_id, []), start=1):
                yield query_id, hit.docid, rank, hit.score
    searcher.close()
