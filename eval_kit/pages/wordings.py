"""A report's section on query variations: tables, the change of each query by method, and queries in both wordings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup

from eval_kit import plots
from eval_kit.measures.definitions import parse
from eval_kit.pages.explorer import document
from eval_kit.pages.report_data import cutoff
from eval_kit.protocols.variations import paired
from eval_kit.protocols.wordings import Changes
from eval_kit.release import Release
from eval_kit.tables import variations as tables
from eval_kit.tables.html import to_html


@dataclass(frozen=True)
class Wordings:
    """The parts of a report's section.

    Attributes:
        systems: in the order of their markers.
        tables: by test set, one per measure, the main measure first; and the paper's table, if ours stand beside it.
        figures: by test set and main measure.
        explorer: what explorer.js reads.
        notes: on the tables.
    """

    systems: list[str]
    tables: list[list[Markup]]
    figures: dict[str, Markup]
    explorer: dict[str, Any]
    notes: list[str]


def wordings(changes: Changes, release: Release) -> Wordings:
    """Lay out what :func:`eval_kit.protocols.wordings.changes_of` found on a release."""
    systems = changes.results["system"].unique(maintain_order=True).to_list()
    measures = {
        test_set: release.test_sets[test_set].measures
        for test_set in changes.results["test_set"].unique(maintain_order=True)
    }
    pairs = paired(changes.values)
    shown = tables.by_test_set(changes)
    return Wordings(
        systems=systems,
        tables=[[to_html(table) for table in of_test_set] for of_test_set in shown],
        figures={
            f"{test_set}, {names[0]}": _by_method(pairs, changes, test_set, names[0], systems)
            for test_set, names in measures.items()
        },
        explorer=_explorer(pairs, measures, systems, release),
        notes=tables.notes(changes),
    )


def _by_method(pairs: pl.DataFrame, changes: Changes, test_set: str, measure: str, systems: list[str]) -> Markup:
    """How the changes of single queries spread, by method and system; replicas are pooled."""
    groups = {variation.full_name: variation.group for variation in changes.variations}
    percentiles = {"p5": 0.05, "q1": 0.25, "median": 0.5, "q3": 0.75, "p95": 0.95}
    change = pl.col("value") - pl.col("clean")
    spread = (
        pairs.filter(pl.col("test_set") == test_set, pl.col("measure") == measure)
        .with_columns(method=pl.col("variation").replace_strict(groups), change=change)
        .group_by("method", "system", maintain_order=True)
        .agg(
            pl.len().alias("n"),
            pl.col("change").mean().alias("mean"),
            *(pl.col("change").quantile(at, "linear").alias(name) for name, at in percentiles.items()),
        )
    )
    return plots.change_by_method(spread, systems, measure)


def _explorer(
    pairs: pl.DataFrame, measures: Mapping[str, tuple[str, ...]], systems: list[str], release: Release
) -> dict[str, Any]:
    """One row for each query, system and variation; ranks are those of the test set's reciprocal rank."""
    rows, texts, groups = [], [], {}
    keys = ["system", "variation", "query_id"]
    for group, (test_set, names) in enumerate(measures.items()):
        of_test_set = pairs.filter(pl.col("test_set") == test_set)
        main = of_test_set.filter(pl.col("measure") == names[0])
        reciprocal = next((name for name in names if parse(name).ranks_from_value), None)
        ranks = of_test_set.filter(pl.col("measure") == reciprocal).select(
            *keys, in_rank=1 / pl.col("clean"), out_rank=1 / pl.col("value")
        )
        rows.append(main.join(ranks, on=keys, how="left", maintain_order="left").with_columns(group=pl.lit(group)))
        groups[f"{test_set} ({names[0]})"] = cutoff(reciprocal) if reciprocal else None
        texts.append(release.queries(test_set))
    every = pl.concat(rows)
    varied = pl.concat(
        release.wordings(release.variations[name]).select("query_id", pl.lit(name).alias("variation"), wording="text")
        for name in every["variation"].unique(maintain_order=True)
    )
    every = every.join(varied, on=["variation", "query_id"], how="left", maintain_order="left")
    return document(
        every.rename({"clean": "in", "value": "out", "variation": "part"}),
        groups,
        systems,
        every["variation"].unique(maintain_order=True).to_list(),
        pl.concat(texts),
    )
