"""BEIR's Figure 2 on a page, and systems' losses against the similarity of queries."""

from pathlib import Path

import polars as pl

from eval_kit import plots
from eval_kit.files import atomic
from eval_kit.pages.page import render
from eval_kit.protocols.overlap import Overlap
from eval_kit.tables.html import to_html


def write_page(results: Overlap, out: Path) -> None:
    """Write the heatmap of passages; with training queries also the table and the picture of losses.

    Raises:
        UserError: the file cannot be written.
    """
    names = results.datasets["dataset"].to_list()
    pairs = {(left, right): value for left, right, value in results.passages.iter_rows()}
    heatmap = plots.heatmap(names, pairs, "Figure 2: weighted Jaccard similarity of passages")
    losses = None
    tables = []
    if results.correlations:
        points = results.losses.with_columns(
            cluster="dataset", shift=pl.lit("beir"), low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64)
        )
        losses = plots.loss_against_jaccard(
            points,
            list(results.correlations),
            "nDCG@10",
            "weighted Jaccard similarity to MS MARCO's training queries",
            "Rel Loss of nDCG@10 to MS MARCO against similarity of queries",
        )
        tables = [to_html(table) for table in (results.beside_losses(), results.correlated())]
    text = render(
        "overlap.html.j2",
        ["tables.js"],
        heatmap=heatmap,
        losses=losses,
        tables=tables,
        systems=list(results.correlations),
        provenance=results.provenance,
    )
    atomic.write_text(out, text)
