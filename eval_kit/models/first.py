"""A run as the first stage of a re-ranker: the passages that it found for each query."""

from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.runs.given import Run
from eval_kit.search.retriever import Hits, Passages


class FirstRun:
    """A run that stands where a retriever would."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def index(self, passages: Passages, folder: Path) -> None:
        """Nothing: the run has been searched."""

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The run's best passages for each query, as trec_eval orders them; none for a query that it lacks."""
        lines = pl.concat(self.run.pieces()).join(queries, on="query_id", how="semi")
        if lines.is_empty():
            raise UserError(
                f"{self.run} has no passage for any of these queries", do="Check that it is a run of this release"
            )
        best = lines.sort("score", "passage_id", descending=True).group_by("query_id", maintain_order=True)
        found = {query: hits for query, *hits in best.agg(pl.col("passage_id", "score").head(depth)).iter_rows()}
        for query in queries["query_id"]:
            yield query, list(zip(*found.get(query, ((), ())), strict=True))
