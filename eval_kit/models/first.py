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
        _check_order(self.run, lines)
        best = lines.sort("score", "passage_id", descending=True).group_by("query_id", maintain_order=True)
        found = {query: hits for query, *hits in best.agg(pl.col("passage_id", "score").head(depth)).iter_rows()}
        for query in queries["query_id"]:
            yield query, list(zip(*found.get(query, ((), ())), strict=True))


def _check_order(run: Run, lines: pl.DataFrame) -> None:
    """Refuse a run whose ranks name other best passages than its scores: which of them to re-rank is unknown."""
    if "stated_rank" not in lines.columns:
        return
    rank, score = pl.col("stated_rank"), pl.col("score")
    in_order = lines.sort("query_id", "score", "stated_rank", descending=[False, True, False])
    of_several = in_order.group_by("query_id").agg(
        falls=(rank.diff() < 0).any(), by_rank=(score.n_unique() == 1) & (rank.n_unique() > 1), several=pl.len() > 1
    )
    at_fault = of_several.filter("several").select(pl.col("falls").sum(), pl.col("by_rank").all())
    falls, by_rank = at_fault.row(0)
    if falls or by_rank:
        raise UserError(
            f"The ranks of {falls:,} queries in {run} contradict their scores"
            if falls
            else f"{run} has one score for all passages of a query, and ranks",
            "Which passages are the best is unknown",
            "Give scores that fall as the ranks rise",
        )
