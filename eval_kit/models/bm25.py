"""BM25 by Lucene as a retriever."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.languages import LANGUAGES
from eval_kit.search import bm25, candidates
from eval_kit.search.retriever import Hits, Passages, best_first


@dataclass(frozen=True)
class Bm25:
    """Search with the given parameters.

    Attributes:
        k1: of BM25.
        b: of BM25.
        rm3: whether to expand queries, with Anserini's defaults.
        language: of Lucene's analyser, by ISO 639-1; empty for the one that the passages are likely in.
        key: of the passages; without one, any finished index will do.
    """

    k1: float = bm25.K1
    b: float = bm25.B
    rm3: bool = False
    language: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Refuse parameters out of range, and a language without an analyser."""
        bm25.check(self.k1, self.b)
        if self.language and self.language not in LANGUAGES:
            raise UserError(f"BM25 has no analyser for {self.language!r}; it has {', '.join(LANGUAGES)}")

    def index(self, passages: Passages, folder: Path) -> None:
        """Index the passages, unless ``folder`` holds a finished index with this key."""
        bm25.index_once(passages, folder, vectors=self.rm3, key=self.key, language=self.language)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages with the greatest BM25 score; Anserini makes equal scores differ in the sixth digit.

        Hits found for the grid's re-rankers with the same settings are reused.
        """
        if self.rm3:
            pairs = queries.select("query_id", "text").iter_rows()
            index = bm25.index_in(folder, vectors=True)
            rankings = bm25.search(pairs, index, depth, k1=self.k1, b=self.b, rm3=True)
        else:
            rankings = candidates.of(queries, folder, candidates.Settings(depth, self.k1, self.b))
        for query, hits in rankings:
            yield query, best_first(hits)
