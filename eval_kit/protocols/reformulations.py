"""MS MARCO Chameleons, Table 7: rankers on reformulations of the Veiled set at 50 %, with our systems beside them."""

from collections.abc import Mapping

import polars as pl

from eval_kit.errors import UserError, parameter
from eval_kit.release.reference import published_cells

_TABLE = "cikm2021-table7"
TEST_SET = "chameleons.veiled.50"
MEASURE = "AP"
_ORIGINAL = "original"


def beside_published(results: pl.DataFrame, rankers: Mapping[str, str]) -> pl.DataFrame:
    """The published cells that have a counterpart in the results.

    Args:
        results: from :func:`eval_kit.protocols.variations.changes`.
        rankers: system → the ranker to set it beside; a system with the name of a ranker needs no entry.

    Returns:
        ``method`` (``original`` for the queries as they were), ``ranker``, ``published``, ``system``, ``value``,
        ``queries``, in the paper's order; empty without results on the Veiled set at 50 %. A method that was applied
        once for each ranker counts only where it was applied for the ranker that the system stands for.
    """
    cells = [(*_ranker_and_method(cell["system"]), float(cell["value"])) for cell in published_cells(_TABLE)]
    table = pl.DataFrame(cells, ["ranker", "method", "published"], orient="row")
    for system, ranker in rankers.items():
        if system not in results["system"]:
            raise UserError(f"{parameter('rankers')} {system}={ranker} names a system that no run is of")
        if ranker not in table["ranker"]:
            names = ", ".join(table["ranker"].unique(maintain_order=True))
            raise UserError(f"{_TABLE} has no ranker {ranker}", do=f"Choose from: {names}")
    ours = results.filter(
        pl.col("test_set") == TEST_SET,
        pl.col("measure") == MEASURE,
        pl.col("queries_are") == "all",
        pl.col("method").str.starts_with("reformulation."),
    ).with_columns(
        ranker=pl.col("system").replace(dict(rankers)),
        method=pl.col("method").str.strip_prefix("reformulation.").str.replace_all("_", "-"),
    )
    of_methods = ours.with_columns(
        method=pl.when(pl.col("method").str.ends_with(pl.concat_str(pl.lit("."), "ranker")))
        .then(pl.col("method").str.split(".").list.first())
        .otherwise("method")
    ).select("ranker", "method", "system", "queries", value="varied")
    whole = ours.filter(pl.col("queries") == pl.col("queries").max()).unique(
        "system", keep="first", maintain_order=True
    )
    original = whole.select("ranker", "system", "queries", value="clean", method=pl.lit(_ORIGINAL))
    both = pl.concat([of_methods, original.select(of_methods.columns)])
    with_paper = table.join(both, on=["ranker", "method"], maintain_order="left")
    return with_paper.select("method", "ranker", "published", "system", "value", "queries")


def _ranker_and_method(system: str) -> tuple[str, str]:
    """``bm25+rm3`` is the ranker bm25 on the queries that rm3 rewrote."""
    ranker, _, method = system.partition("+")
    return ranker, method or _ORIGINAL
