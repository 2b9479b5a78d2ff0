"""MS MARCO Chameleons: how a run does on the queries that other rankers fail on (CIKM 2021, Tables 2 and 4, Fig. 3)."""

import polars as pl
from rich.table import Table
from rich.text import Text

from eval_kit.errors import UserError
from eval_kit.release.reference import published

SETS = ("lesser", "pygmy", "veiled")
MEASURES = ("AP", "nDCG", "RR@10")
REFERENCE = "cikm2021-table4"
REFERENCE_LEVEL = 50


def chameleons(values: pl.DataFrame) -> pl.DataFrame:
    """A run's figures on the Chameleons sets, beside those on all dev queries.

    A query is *solved* by a run that has a relevant passage among its first ten.

    Args:
        values: per-query values of every test set, as :meth:`eval_kit.measures.score.Scores.per_query`.

    Returns:
        ``run``, ``set``, ``level`` (percent), ``measure``, ``value``, ``queries``, ``solved`` (queries).

    Raises:
        UserError: no run covers the Chameleons sets.
    """
    name = pl.col("test_set").str.split(".")
    rows = values.filter(pl.col("test_set").str.starts_with("chameleons."), pl.col("measure").is_in(MEASURES))
    if rows.is_empty():
        raise UserError("no run covers the Chameleons sets of dev-small")
    rows = rows.with_columns(set=name.list.get(1), level=name.list.get(2).cast(pl.Int64))
    keys = ["run", "set", "level"]
    found = rows.filter(pl.col("measure") == "RR@10").group_by(keys).agg(solved=(pl.col("value") > 0).sum())
    means = rows.group_by(*keys, "measure").agg(pl.col("value").mean(), pl.len().alias("queries"))
    return means.join(found, on=keys).sort("run", "level", "set", "measure")


def standing(results: pl.DataFrame) -> pl.DataFrame:
    """Where each run stands among the published rankers (Table 4, the sets at 50 %).

    Returns:
        ``run``, ``set``, ``measure``, ``value``, ``rank`` (1 is best) and ``of``: the run and the published rankers.
    """
    theirs = pl.DataFrame(
        [
            (cell["test_set"].split(".")[1], cell["measure"], float(cell["value"]))
            for cell in published(REFERENCE)
            if cell["figure"] == "value"
        ],
        {"set": pl.String, "measure": pl.String, "theirs": pl.Float64},
        orient="row",
    )
    ours = results.filter(pl.col("level") == REFERENCE_LEVEL).select("run", "set", "measure", "value")
    return (
        ours.join(theirs, on=["set", "measure"])
        .group_by("run", "set", "measure", "value")
        .agg(rank=(pl.col("theirs") > pl.col("value")).sum() + 1, of=pl.len() + 1)
        .sort("run", "measure", "set")
    )


def layout(results: pl.DataFrame, with_published: bool) -> Table:
    """Tables 2 and 4: each measure on each set and level, one column a run.

    Args:
        results: from :func:`chameleons`.
        with_published: add the published rankers' figures; comparable on the published sets only.
    """
    runs = results["run"].unique(maintain_order=True).to_list()
    theirs = {
        (cell["system"], cell["test_set"], cell["measure"]): f"{cell['value']:.4f}"
        for cell in (published(REFERENCE) if with_published else [])
    }
    rankers = list(dict.fromkeys(system for system, _, _ in theirs))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "set", "level"):
        table.add_column(name, no_wrap=True)
    table.add_column("queries", justify="right", no_wrap=True)
    for name in runs:
        table.add_column(Text(name), justify="right", overflow="fold")
    for name in rankers:
        table.add_column(f"{name}\n(published)", justify="right", style="dim")
    rows = {(row["run"], row["set"], row["level"], row["measure"]): row for row in results.iter_rows(named=True)}
    for measure in (*MEASURES, "solved"):
        for name in SETS:
            for level in results["level"].unique().sort():
                mine = [rows[run, name, level, "RR@10" if measure == "solved" else measure] for run in runs]
                cells = [f"{row['solved']:,}" if measure == "solved" else f"{row['value']:.4f}" for row in mine]
                others = [theirs.get((ranker, f"chameleons.{name}.{level}", measure), "") for ranker in rankers]
                table.add_row(measure, name, f"{level} %", f"{mine[0]['queries']:,}", *cells, *others)
    return table
