"""BM25 by Lucene, as Anserini calls it."""

import json
import math
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import version
from itertools import batched, chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eval_kit import languages, words
from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.beir import read_fields
from eval_kit.files.cache import cache_folder
from eval_kit.files.digests import file_digests
from eval_kit.question_words import ENGLISH
from eval_kit.release import Release
from eval_kit.search import lucene
from eval_kit.search.passages import collection_key, passages
from eval_kit.search.processes import cores
from eval_kit.search.retriever import Passages

K1 = 0.9
B = 0.4
FIELDS = {"contents": 1.0, "title": 1.0, "queries": 1.0}
"""Text, title and written queries with their weights, as in BEIR's own code (Anserini's multifield runs have the first
two). A field that no passage has changes nothing."""
OF_FIELDS = "fields"
"""Where an index of fields is kept, below a folder that may hold others."""
ANALYSER = "language"
"""File in an index that names the language it is analysed by, unless that is English."""
_INDEX_BATCH = 2_000
_SEARCH_BATCH = 500
"""Queries in a call: Java holds a thousand hits of each, so this bounds the memory."""
_MOST_TERMS = 1 << 20
"""Distinct words in a query: Lucene by default refuses more than 1,024; ArguAna's queries are whole passages."""
THREADS = cores()


def index(passages: Passages, folder: Path, threads: int = THREADS, language: str = "") -> None:
    """Index ``(passage id, text)`` pairs into ``folder``, replacing any index there.

    The analyser is that of the ``language``, else of the language that the first passages are likely in, else the
    English one, which is said.
    """
    documents = ({"id": passage_id, "contents": text} for passage_id, text in passages)
    _index(documents, folder, ["-threads", str(threads)], language)


def index_fields_once(corpus: Path, folder: Path, key: str, language: str = "") -> None:
    """Do what :func:`index_once` does with a ``corpus.jsonl`` in BEIR's format, for a search over :data:`FIELDS`."""
    documents = with_count(read_fields(corpus, ("text", *list(FIELDS)[1:])), "indexing passages", "passages")
    rows = ({"id": passage_id, **dict(zip(FIELDS, values, strict=True))} for passage_id, values in documents)
    options = ["-threads", str(THREADS), "-fields", *list(FIELDS)[1:]]
    _once(folder / OF_FIELDS, key, lambda target: _index(rows, target, options, language))


def _index(documents: Iterable[dict[str, str]], folder: Path, options: list[str], language: str = "") -> None:
    lucene.start()
    from jnius import autoclass

    shutil.rmtree(folder, ignore_errors=True)
    documents = iter(documents)
    first = list(islice(documents, languages.SAMPLE))
    language = language or _language(document["contents"] for document in first)
    documents = chain(first, documents)
    if language in languages.PAIRED:
        documents = map(_in_pairs, documents)
    elif language != ENGLISH:
        options = [*options, "-language", language]
    # Anserini demands an input, though documents come by addRawDocuments
    arguments = ["-input", "", "-collection", "JsonCollection", "-index", str(folder), *options]
    indexer = autoclass("io.anserini.index.SimpleIndexer")(arguments)
    count = 0
    for batch in batched(documents, _INDEX_BATCH):
        indexer.addRawDocuments(list(map(json.dumps, batch)))
        count += sum(bool(document["contents"].strip()) for document in batch)  # Anserini leaves out empty ones
    indexer.close()
    if (stored_count := lucene.documents(folder)) < count:
        raise UserError(
            f"Lucene wrote only {stored_count:,} of {count:,} passages to {folder}",
            do="Check that the disk is not full",
        )
    if language != ENGLISH:
        atomic.write_text(folder / ANALYSER, language)


def _in_pairs(document: dict[str, str]) -> dict[str, str]:
    return {name: value if name == "id" else words.with_spaces(value) for name, value in document.items()}


def _language(texts: Iterable[str]) -> str:
    likely = languages.likely(pl.Series(list(texts), dtype=pl.String))
    if likely is None:
        warnings.warn(
            "Lucene has no analyser for the language of the passages. BM25 uses the English one", stacklevel=2
        )
    elif likely != ENGLISH:
        warnings.warn(f"BM25 uses the analyser for the passages' likely language, {likely}", stacklevel=2)
    return likely or ENGLISH


def check(k1: float, b: float) -> None:
    """Refuse parameters that Lucene refuses once all passages are indexed."""
    if not 0 <= k1 < math.inf or not 0 <= b <= 1:
        raise UserError(f"BM25's k1 must be 0 or more and its b 0 to 1, not {k1} and {b}")


def index_once(passages: Passages, folder: Path, key: str = "", language: str = "") -> None:
    """:func:`index` below ``folder``, unless that is done already. A second process waits for the first.

    An index of passages with another key is replaced; without a key, any finished index will do.
    """
    _once(index_in(folder), key, lambda target: index(passages, target, language=language))


def link_once(release: Release, folder: Path, key: str) -> None:
    """Do what :func:`index_once` does by linking to the files of the release's index in the user's cache.

    Where links are impossible, as to another disk, the files are copied.
    """

    def link(target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(index_of(release, cache_folder()), target, copy_function=atomic.link_or_copy)

    _once(index_in(folder), key, link)


def _once(target: Path, key: str, make: Callable[[Path], None]) -> None:
    """Make an index, unless it is finished and of the passages with that key."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic.file_lock(target.parent / ".lock"):
        made = _made(target)
        if made is None or (key and made != key) or not _is_whole(target):
            _marker(target).unlink(missing_ok=True)
            make(target)
            _seal(target, key)


def _marker(index: Path) -> Path:
    return index.with_name(f"{index.name}.json")


def _seal(index: Path, key: str) -> None:
    """Say beside a finished index whose it is, and what its files are."""
    made = {"key": key, "pyserini": version("pyserini"), "files": file_digests(index)}
    atomic.write_text(_marker(index), json.dumps(made) + "\n")


def _made(index: Path) -> str | None:
    """The key of a finished index that this version of Lucene made."""
    try:
        made = json.loads(_marker(index).read_bytes())
        return str(made["key"]) if made["pyserini"] == version("pyserini") else None
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _is_whole(index: Path) -> bool:
    """Whether the files of a finished index are as they were written; if not, that is said."""
    is_whole: bool = json.loads(_marker(index).read_bytes())["files"] == file_digests(index)
    if not is_whole:
        warnings.warn(f"The BM25 index {index} is damaged. The kit indexes the passages again", stacklevel=2)
    return is_whole


def index_in(folder: Path) -> Path:
    """Where :func:`index_once` keeps an index below ``folder``."""
    return folder / "plain"


def key_of(folder: Path) -> str:
    """The key of the passages that :func:`index_once` has indexed below ``folder``."""
    key = _made(index_in(folder))
    if key is None:
        raise UserError(f"{folder} has no finished BM25 index", do="Index the passages first")
    return key


def index_of(release: Release, cache: Path, threads: int = THREADS) -> Path:
    """The folder of the index of a release's passages: in ``cache``, named by the collection, made if need be.

    Only one process at a time makes it, while others wait; a killed one leaves no half index under the name.
    """
    lucene.start()
    language = _language(text for _, text in islice(passages(release), languages.SAMPLE))
    name = f"{collection_key(release)}-pyserini-{version('pyserini')}"
    folder = cache / "bm25" / (name if language == ENGLISH else f"{name}-{language}")
    try:
        with atomic.lock(folder):
            if _made(folder) != name or not _is_whole(folder):
                with atomic.folder(folder) as staging:
                    reading = with_count(passages(release), "indexing passages", "passages")
                    index(reading, staging, threads, language=language)
                _seal(folder, name)
    except OSError as error:
        raise UserError(f"Could not keep the index in {cache}: {error.strerror or error}") from error
    return folder


def search(
    queries: Iterable[tuple[str, str]],
    folder: Path,
    depth: int = 1000,
    threads: int = THREADS,
    k1: float = K1,
    b: float = B,
    fields: Mapping[str, float] | None = None,
) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Search for ``(query id, text)`` pairs.

    Threads are Java's, and do not affect the result. Of an index by :func:`index_fields_once`, a passage's score is the
    weighted sum of its ``fields``. Yields every query's id, in their order, and its ``(passage id, score)`` pairs, in
    Lucene's order: best first. A query without any term in the index has no pairs.
    """
    lucene.start()
    from jnius import autoclass

    autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(_MOST_TERMS)
    with closing(autoclass("io.anserini.search.SimpleSearcher")(str(folder))) as searcher:
        searcher.set_bm25(float(k1), float(b))
        language = (folder / ANALYSER).read_text(encoding="utf-8") if (folder / ANALYSER).is_file() else ENGLISH
        if language in languages.PAIRED:
            queries = ((query_id, words.with_spaces(text)) for query_id, text in queries)
        elif language != ENGLISH:
            searcher.set_language(language)
        weights = autoclass("java.util.HashMap")()
        for name, weight in (fields or {}).items():
            weights.put(name, autoclass("java.lang.Float")(weight))
        mapper = _mapper()
        for batch in batched(queries, _SEARCH_BATCH):
            ids, texts = autoclass("java.util.ArrayList")(), autoclass("java.util.ArrayList")()
            for number, (_, text) in enumerate(batch):
                ids.add(str(number))  # two queries may have one id
                texts.add(text)
            if fields:
                results = searcher.batch_search_fields(texts, ids, depth, threads, weights)
            else:
                results = searcher.batch_search(texts, ids, depth, threads)
            hits = json.loads(mapper.writeValueAsString(results))
            for number, (query_id, _) in enumerate(batch):
                query_hits = hits.get(str(number), [])
                scores = np.array([hit["score"] for hit in query_hits], np.float32).tolist()
                yield query_id, [(hit["docid"], score) for hit, score in zip(query_hits, scores, strict=True)]
            del results, hits
            if len(batch) == _SEARCH_BATCH:  # Java would let its heap grow to gigabytes instead
                autoclass("java.lang.System").gc()


def _mapper() -> Any:
    """Turns the hits of a batch into JSON in one call: a fifth of the time that a call for each hit takes."""
    from jnius import autoclass

    mapper = autoclass("com.fasterxml.jackson.databind.ObjectMapper")()
    stored_fields = autoclass("java.lang.Class").forName("org.apache.lucene.document.Document")
    mapper.configOverride(stored_fields).setIsIgnoredType(autoclass("java.lang.Boolean")("true"))
    return mapper
