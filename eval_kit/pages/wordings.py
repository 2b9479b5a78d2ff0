"""A report's section on query variations: tables, the change of each query by method, and queries in both wordings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup

from eval_kit.measures.definitions import parse
from eval_kit.pages.explorer import document
from eval_kit.pages.report_data import cutoff
from eval_kit.protocols.variations import Variations, paired
from eval_kit.release import Release
from eval_kit.results import Figure
from eval_kit.tables.html import to_html


@dataclass(frozen=True)
class Wordings:
    """The parts of a report's section.

    Attributes:
        systems: in the order of their markers.
        tables: by test set, one per measure, the main measure first; and the paper's table, if ours stand beside it.
        figures: of each test set's main measure.
        explorer: what explorer.js reads.
        notes: on the tables.
    """

    systems: list[str]
    tables: list[list[Markup]]
    figures: list[Figure]
    explorer: dict[str, Any]
    notes: list[str]


def wordings(changes: Variations, release: Release) -> Wordings:
    """Lay out what :func:`eval_kit.protocols.variations.variations` found on a release."""
    systems = changes.results["system"].unique(maintain_order=True).to_list()
    measures = {
        test_set: release.test_sets[test_set].measures
        for test_set in changes.results["test_set"].unique(maintain_order=True)
    }
    return Wordings(
        systems=systems,
        tables=[[to_html(table) for table in of_test_set] for of_test_set in changes.by_test_set()],
        figures=changes.figures(),
        explorer=_explorer(paired(changes.values), measures, systems, release),
        notes=changes.notes(),
    )


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
