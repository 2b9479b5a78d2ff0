"""Figure 2 of CIKM 2022 on a page: each model's score on BEIR against its inter- and extrapolation scores."""

from pathlib import Path

import polars as pl
from markupsafe import Markup

from eval_kit import plots
from eval_kit.files import atomic
from eval_kit.pages.page import render
from eval_kit.plots import Point
from eval_kit.protocols.align import DOMAINS, TRAININGS, Alignment, layout
from eval_kit.tables.html import to_html


def write_page(results: Alignment, out: Path) -> None:
    """Write the table and two pictures per dataset, as the paper draws TREC-COVID's.

    Raises:
        UserError: the file cannot be written.
    """
    pictures = {}
    for dataset in results.models["dataset"].unique(maintain_order=True):
        title = DOMAINS.get(dataset, (dataset, ""))[0]
        of_dataset = results.models.filter(pl.col("dataset") == dataset)
        trainings = [name for name in TRAININGS if name in of_dataset["training"]]
        pictures[title] = [_picture(of_dataset, training, title) for training in trainings]
    table = to_html(layout(results.correlations))
    atomic.write_text(
        out, render("alignment.html.j2", [], table=table, pictures=pictures, provenance=results.provenance)
    )


def _picture(models: pl.DataFrame, training: str, title: str) -> Markup:
    trained = models.filter(pl.col("training") == training)
    points = [
        Point(score, value, f"{system}: {score:.3f}, {title} {value:.3f}")
        for system, score, value in trained.select("system", "score", "value").iter_rows()
    ]
    return plots.points(
        {training: points},
        f"{training} score",
        "nDCG@10",
        f"CIKM 2022, Figure 2: {title} against {training}",
        linked=False,
    )
