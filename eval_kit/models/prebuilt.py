"""Lucene indexes built elsewhere: Pyserini's prebuilt ones by name, or folders of the same kind.

They contain their passages (docT5query, DeepImpact, uniCOIL), so there is nothing to index here.
"""

import contextlib
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError, first_line
from eval_kit.search import bm25, lucene
from eval_kit.search.retriever import Hits, Passages, best_first
from eval_kit.search.topk import device_of

GROUP = 500
"""Queries given to Lucene at once."""
WORDS = "words"


class Prebuilt:
    """A Lucene index with its way of scoring.

    Args:
        model: name of a prebuilt index of Pyserini, or a folder.
        query_encoder: None for BM25 over a text index. For an impact index, what weights the query's terms: the Hub
            id or folder of a uniCOIL encoder, or ``words``, which counts every distinct lower-case word once
            (DeepImpact).
        k1: of BM25.
        b: of BM25.
    """

    def __init__(self, model: str, *, query_encoder: str | None = None, k1: float = bm25.K1, b: float = bm25.B) -> None:
        self.model = model
        bm25.check(k1, b)
        self._encoder, self._k1, self._b = query_encoder, k1, b

    def index(self, passages: Passages, folder: Path) -> None:
        """Do nothing: the index exists."""

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages that Lucene ranks highest."""
        for group in queries.iter_slices(GROUP):
            ids = group["query_id"].to_list()
            hits = self._searcher.batch_search(group["text"].to_list(), ids, k=depth, threads=bm25.THREADS)
            for query_id in ids:
                yield query_id, best_first((hit.docid, hit.score) for hit in hits.get(query_id, []))

    @cached_property
    def _searcher(self) -> Any:
        lucene.start()
        from pyserini.search.lucene import LuceneImpactSearcher, LuceneSearcher

        folder = self._folder()
        try:
            if self._encoder is not None:
                return LuceneImpactSearcher(folder, _Words() if self._encoder == WORDS else self._unicoil(), min_idf=-1)
            searcher = LuceneSearcher(folder)
            searcher.set_bm25(self._k1, self._b)
        except UserError:
            raise
        except Exception as error:  # jnius raises Java's exceptions as its own
            raise UserError(f"{self.model}: cannot be opened as a Lucene index: {first_line(error)}") from error
        return searcher

    def _folder(self) -> str:
        """The folder of the index, downloaded if it is one of Pyserini's and not in its cache."""
        if Path(self.model).is_dir():
            return self.model
        from pyserini.prebuilt_index_info import IMPACT_INDEX_INFO, TF_INDEX_INFO
        from pyserini.util import download_prebuilt_index

        if self.model not in TF_INDEX_INFO and self.model not in IMPACT_INDEX_INFO:
            raise UserError(f"{self.model}: there is no such folder, and no such inverted index among Pyserini's")
        if self.model in IMPACT_INDEX_INFO and self._encoder is None:
            raise UserError(
                f"{self.model}: is an index of impacts; name the query encoder with --option query_encoder=..."
            )
        try:
            with contextlib.redirect_stdout(sys.stderr):
                folder: str = download_prebuilt_index(self.model)
        except Exception as error:  # whatever urllib, tarfile and Pyserini raise
            raise UserError(f"{self.model}: Pyserini cannot download it: {first_line(error)}") from error
        return folder

    def _unicoil(self) -> Any:
        from pyserini.encode import UniCoilQueryEncoder

        try:
            return UniCoilQueryEncoder(self._encoder, device=str(device_of(None)))
        except Exception as error:  # transformers, the Hub's client
            raise UserError(f"query encoder {self._encoder}: cannot be loaded: {first_line(error)}") from error


class _Words:
    """Every distinct word of a query, in lower case and without punctuation, with weight 1."""

    def encode(self, query: str) -> dict[str, int]:
        return dict.fromkeys(re.findall(r"\w+", query.lower()), 1)
