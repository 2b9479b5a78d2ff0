"""BM25 by Lucene, through Pyserini."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import batched
from pathlib import Path
from typing import Any

from eval_kit.console import counted
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.release import Release
from search import lucene
from search.passages import collection_key, passages

K1 = 0.9
B = 0.4
INDEX_BATCH = 2_000
SEARCH_BATCH = 500
"""Queries at a time: Lucene hands over whole passages, a thousand for each query, so this bounds the memory."""


def index(passages: Iterable[tuple[str, str]], folder: Path, threads: int = 2, vectors: bool = False) -> None:
    """Index ``(passage id, text)`` pairs into ``folder``, in the place of an index that stands there.

    With ``vectors`` the terms of each passage are kept too, which RM3 reads.

    Raises:
        UserError: no Java; an index that lacks passages, as on a full disk (Lucene only logs that).
    """
    lucene.start()
    from pyserini.index.lucene import LuceneIndexer

    shutil.rmtree(folder, ignore_errors=True)
    arguments = ["-index", str(folder), "-storeDocvectors"] if vectors else None
    indexer = LuceneIndexer(str(folder), arguments, threads=threads)
    given = 0
    for batch in batched(passages, INDEX_BATCH):
        indexer.add_batch_dict([{"id": passage_id, "contents": text} for passage_id, text in batch])
        given += sum(bool(text.strip()) for _, text in batch)  # Anserini leaves out empty ones
    indexer.close()
    if (kept := lucene.documents(folder)) < given:
        raise UserError(f"{folder}: Lucene could write {kept:,} of {given:,} passages there; is the disk full?")


def index_of(release: Release, cache: Path, threads: int = 2) -> Path:
    """The folder of the index of a release's passages: in ``cache`` by the collection, made there if need be.

    Two processes that want it wait for each other; one that is killed leaves no half index under the name.

    Raises:
        UserError: no passages, no Java, or a cache that cannot be written.
    """
    lucene.start()
    folder = cache / "bm25" / f"{collection_key(release)}-pyserini-{version('pyserini')}"
    try:
        with atomic.lock(folder):
            if not folder.exists():
                with atomic.folder(folder) as staging:
                    reading = counted(passages(release), "indexing passages", "passages")
                    index(reading, staging, threads)
    except OSError as error:
        raise UserError(f"{cache}: cannot keep the index there: {error.strerror or error}") from error
    return folder


def search(
    queries: Iterable[tuple[str, str]],
    folder: Path,
    depth: int = 1000,
    threads: int = 2,
    k1: float = K1,
    b: float = B,
    rm3: bool = False,
) -> Iterator[tuple[str, str, int, float]]:
    """Search for ``(query id, text)`` pairs; ``rm3`` expands queries with Anserini's defaults.

    RM3 needs an index with vectors.

    Yields:
        ``(query id, passage id, rank from 1, score)``, the queries in their order, each best first.
    """
    for query_id, hits in _hits(queries, folder, depth, threads, k1, b, rm3):
        for rank, hit in enumerate(hits, start=1):
            yield query_id, hit.docid, rank, hit.score


def ranked(
    queries: Iterable[tuple[str, str]],
    folder: Path,
    depth: int = 1000,
    threads: int = 2,
    k1: float = K1,
    b: float = B,
) -> Iterator[tuple[str, list[str]]]:
    """Search for ``(query id, text)`` pairs.

    Yields:
        ``(query id, passage ids)``, every query in its order, the passages best first; none is an empty list.
    """
    for query_id, hits in _hits(queries, folder, depth, threads, k1, b):
        yield query_id, [hit.docid for hit in hits]


def _hits(
    queries: Iterable[tuple[str, str]],
    folder: Path,
    depth: int,
    threads: int,
    k1: float,
    b: float,
    rm3: bool = False,
) -> Iterator[tuple[str, list[Any]]]:
    lucene.start()
    with (_with_rm3 if rm3 else _plain)(folder, k1, b) as searched:
        for batch in batched(queries, SEARCH_BATCH):
            ids, texts = zip(*batch, strict=True)
            hits = searched(list(texts), list(ids), depth, threads)
            for query_id in ids:
                yield query_id, hits.get(query_id, [])


type _Searcher = Callable[[list[str], list[str], int, int], dict[str, list[Any]]]
"""Takes texts and ids of queries, depth and threads."""


@contextmanager
def _plain(folder: Path, k1: float, b: float) -> Iterator[_Searcher]:
    """Anserini's searcher as Pyserini's LuceneSearcher calls it; to import that takes eight seconds."""
    from jnius import autoclass

    as_list = autoclass("java.util.ArrayList")
    searcher = autoclass("io.anserini.search.SimpleSearcher")(str(folder))
    searcher.set_bm25(float(k1), float(b))

    def search(texts: list[str], ids: list[str], depth: int, threads: int) -> dict[str, list[Any]]:
        queries, names = as_list(), as_list()
        for text, query_id in zip(texts, ids, strict=True):
            queries.add(text)
            names.add(query_id)
        hits = searcher.batch_search(queries, names, depth, threads)
        return {entry.getKey(): entry.getValue() for entry in hits.entrySet().toArray()}

    try:
        yield search
    finally:
        searcher.close()


@contextmanager
def _with_rm3(folder: Path, k1: float, b: float) -> Iterator[_Searcher]:
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(folder))
    searcher.set_bm25(k1, b)
    searcher.set_rm3()
    try:
        yield lambda texts, ids, depth, threads: searcher.batch_search(texts, ids, k=depth, threads=threads)
    finally:
        searcher.close()
