"""MS MARCO Chameleons: how a run does on the queries that other rankers fail on (CIKM 2021, Tables 2 and 4, Fig. 3)."""

from itertools import product

import polars as pl

from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.release.reference import published
from eval_kit.tables.table import Column, Table

SETS = ("lesser", "pygmy", "veiled")
MEASURES = ("AP", "nDCG", "RR@10")
SOLVED = "solved"
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
    solved = rows.filter(pl.col("measure") == "RR@10").group_by(keys).agg(solved=(pl.col("value") > 0).sum())
    means = rows.group_by(*keys, "measure").agg(pl.col("value").mean(), pl.len().alias("queries"))
    return means.join(solved, on=keys).sort("run", "level", "set", "measure")


def standing(results: pl.DataFrame) -> pl.DataFrame:
    """Where each run stands among the published rankers (Table 4, the sets at 50 %).

    Returns:
        ``run``, ``set``, ``measure``, ``value``, ``rank`` (1 is best) and ``of``: the run and the published rankers.
    """
    rankers = pl.DataFrame(
        [
            (cell["test_set"].split(".")[1], cell["measure"], float(cell["value"]))
            for cell in published(REFERENCE)
            if cell["figure"] == "value"
        ],
        {"set": pl.String, "measure": pl.String, "published": pl.Float64},
        orient="row",
    )
    runs = results.filter(pl.col("level") == REFERENCE_LEVEL).select("run", "set", "measure", "value")
    return (
        runs.join(rankers, on=["set", "measure"])
        .group_by("run", "set", "measure", "value")
        .agg(rank=(pl.col("published") > pl.col("value")).sum() + 1, of=pl.len() + 1)
        .sort("run", "measure", "set")
    )


def layout(results: pl.DataFrame, with_published: bool) -> Table:
    """Tables 2 and 4: each measure on each set and level, one column a run.

    Args:
        results: from :func:`chameleons`.
        with_published: add the published rankers' figures; comparable on the published sets only.
    """
    runs = results["run"].unique(maintain_order=True).to_list()
    cells = published(REFERENCE) if with_published else []
    by_ranker = {(cell["system"], cell["test_set"], cell["measure"]): float(cell["value"]) for cell in cells}
    rankers = dict.fromkeys(system for system, _, _ in by_ranker)
    columns = [Column(name, wrap="never") for name in ("", "set", "level")]
    columns.append(Column("queries", "number", wrap="never"))
    columns += [Column(name, "number", wrap="anywhere") for name in runs]
    columns += [Column("(published)", "number", group=name, style="dim") for name in rankers]
    rows = {(row["run"], row["set"], row["level"], row["measure"]): row for row in results.iter_rows(named=True)}
    lines = []
    for measure, name, level in product((*MEASURES, SOLVED), SETS, results["level"].unique().sort()):
        ours = [rows[run, name, level, "RR@10" if measure == SOLVED else measure] for run in runs]
        line = [measure, name, f"{level} %", f"{ours[0]['queries']:,}"]
        if measure == SOLVED:
            lines.append([*line, *(f"{row['solved']:,}" for row in ours), *("" for _ in rankers)])
            continue
        show = parse(measure).show
        theirs = [by_ranker.get((ranker, f"chameleons.{name}.{level}", measure)) for ranker in rankers]
        values = [*(row["value"] for row in ours), *theirs]
        lines.append([*line, *("" if value is None else show(value) for value in values)])
    return Table(columns, [lines])
