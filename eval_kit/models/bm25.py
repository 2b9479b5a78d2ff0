"""BM25 by Lucene as a retriever."""

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.languages import LANGUAGES
from eval_kit.search import bm25, candidates
from eval_kit.search.passages import Collection
from eval_kit.search.retriever import Hits, Passages, best_first


@dataclass(frozen=True)
class Bm25:
    """Search with the given parameters.

    ``language`` is of Lucene's analyser, by ISO 639-1; empty for the one that the passages are likely in. With
    ``fields``, title and text (and written queries) are searched as fields of their own, as in BEIR, read from
    ``corpus``. Without a ``key`` of the passages, any finished index will do.
    """

    k1: float = bm25.K1
    b: float = bm25.B
    language: str = ""
    fields: bool = False
    key: str = ""
    corpus: Path | None = None

    def __post_init__(self) -> None:
        """Refuse parameters out of range, and a language without an analyser."""
        bm25.check(self.k1, self.b)
        if self.language and self.language not in LANGUAGES:
            raise UserError(f"BM25 has no analyser for {self.language!r}", do=f"Choose from: {', '.join(LANGUAGES)}")

    def over(self, collection: Collection) -> "Bm25":
        """The same for a collection, whose index is known by its passages."""
        if self.fields and collection.corpus is None:
            raise UserError("BM25 with titles and texts as two fields needs a BEIR folder as the release")
        return replace(self, key=f"{collection.key} {self.language}", corpus=collection.corpus)

    def index(self, passages: Passages, folder: Path) -> None:
        """Index the passages, unless ``folder`` holds a finished index with this key."""
        if self.fields and self.corpus is not None:
            bm25.index_fields_once(self.corpus, folder, self.key, self.language)
            return
        bm25.index_once(passages, folder, self.key, self.language)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages with the greatest BM25 score; Anserini makes equal scores differ in the sixth digit.

        Hits found for the grid's re-rankers with the same settings are reused.
        """
        pairs = queries.select("query_id", "text").iter_rows()
        if self.fields:
            index = folder / bm25.OF_FIELDS
            rankings = bm25.search(pairs, index, depth, k1=self.k1, b=self.b, fields=bm25.FIELDS)
        else:
            rankings = candidates.of(queries, folder, candidates.Settings(depth, self.k1, self.b))
        for query, hits in rankings:
            yield query, best_first(hits)
