"""Every query of a grid with its In and Out, as data that the page's script sorts, searches and shows."""

from collections.abc import Mapping, Sequence

import polars as pl

from eval_kit.pages import report_tables
from eval_kit.pages.markup import Html, data, element, joined
from eval_kit.pages.report_data import NAMES, cutoff, main_measure, texts
from eval_kit.pages.report_tables import scroll
from eval_kit.protocols.grid import Protocols
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS

MAX_ROWS = 4_000
"""Rows of the per-query explorer; of a larger grid those with the greatest difference, either way."""


def explorer(
    found: Protocols,
    pairs: Mapping[str, pl.DataFrame],
    systems: Sequence[str],
    release: Release,
    r: pl.DataFrame | None,
) -> Html:
    """The section of queries; ``r`` adds the nearness of each."""
    shifts = list(found.results)
    measures = [main_measure(found.results[shift]) for shift in shifts]
    frames = [
        pairs[shift]
        .filter(pl.col("measure") == measure)
        .group_by("system", "part", "query_id", maintain_order=True)
        .agg(pl.col("inside", "out").mean(), pl.col("in_rank", "out_rank").median())
        .with_columns(group=pl.lit(place), shift=pl.lit(shift))
        for place, (shift, measure) in enumerate(zip(shifts, measures, strict=True))
    ]
    every = pl.concat(frames)
    rows = every.with_columns(size=(pl.col("inside") - pl.col("out")).abs())
    rows = rows.sort("size", descending=True, maintain_order=True).head(MAX_ROWS)
    if r is None:
        rows = rows.with_columns(r=pl.lit(None, pl.Float64))
    else:
        rows = rows.join(r, on=["shift", "part", "query_id"], how="left", maintain_order="left")
    ids = rows["query_id"].unique(maintain_order=True)
    shown = dict(texts(release, shifts, ids).iter_rows())
    in_order = [part for shift in shifts if SHIFTS[shift].group != "size" for part in found.clusters[shift]]
    parts = list(dict.fromkeys([*in_order, *(part for one in pairs.values() for part in one["part"].unique().sort())]))
    places = {name: {one: i for i, one in enumerate(all_)} for name, all_ in
              (("q", ids), ("s", systems), ("p", parts))}  # fmt: skip
    document = {
        "groups": [f"{NAMES[shift]} ({measure})" for shift, measure in zip(shifts, measures, strict=True)],
        "cutoffs": [cutoff(measure) for measure in measures],
        "systems": systems,
        "parts": parts,
        "queries": [[one, shown.get(one) or ""] for one in ids],
        "reach": float(str(rows["size"].max())) or 1.0,
        "rows": [
            [
                row["group"], places["s"][row["system"]], places["p"][row["part"]], places["q"][row["query_id"]],
                round(row["inside"], 4), round(row["out"], 4), _rank(row["in_rank"]), _rank(row["out_rank"]),
                None if row["r"] is None else float(f"{row['r']:.5g}"),
            ]
            for row in rows.iter_rows(named=True)
        ],
    }  # fmt: skip
    told = f"All {every.height:,} rows are here" if every.height <= MAX_ROWS else (
        f"Of {every.height:,} rows, the {MAX_ROWS:,} with the greatest difference of In and Out are here"
    )  # fmt: skip
    about = (
        f"{told}: one for each query, system and cluster. In is the mean over the models that saw the query's cluster "
        "in training, Out the model that did not; a rank is where the first relevant passage stands (the median of "
        "several models)."
    )
    columns = [
        ("query", "Query", False),
        ("loss", "In − Out", True),
        ("in", "In", True),
        ("out", "Out", True),
        ("in_rank", "Rank In", True),
        ("out_rank", "Rank Out", True),
        ("r", "R", True),
        ("part", "Cluster", False),
        ("system", "System", False),
    ]
    head = [
        report_tables.sort_header(title, number, "descending" if key == "loss" else None, key)
        for key, title, number in columns
        if key != "r" or r is not None
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody"), class_="wide")
    controls = element(
        "form",
        _select("Shift", "group"),
        _select("System", "system"),
        _select("Cluster", "part"),
        element(
            "label",
            "Search",
            element("input", type="search", name_="search", placeholder="words or id", autocomplete="off"),
        ),
        class_="controls",
        role="search",
    )
    inside = [
        controls,
        element("p", role="status", aria_live="polite"),
        scroll("queries", table),
        element("button", "Show more", type="button", class_="more", hidden=True),
        element("noscript", element("p", "The list of queries needs JavaScript; everything above does not.")),
    ]
    box = element("div", *inside, id="explorer", data_r="yes" if r is not None else None)
    return joined(element("p", about, class_="quiet"), box, data("rows", document))


def _select(label: str, name: str) -> Html:
    return element("label", label, element("select", name_=name))


def _rank(value: float | None) -> float | None:
    """A rank for the page's script: 0 stands for nothing found."""
    if value is None:
        return None
    return 0 if value == float("inf") else round(value, 1)
