"""MS MARCO Chameleons, Table 7: rankers on reformulations of the Veiled set at 50 %, with our systems beside them."""

import polars as pl

from eval_kit.release.reference import published_cells

_TABLE = "cikm2021-table7"
TEST_SET = "chameleons.veiled.50"
MEASURE = "AP"
_ORIGINAL = "original"


def beside_published(results: pl.DataFrame) -> pl.DataFrame:
    """The published cells that have a counterpart in the results.

    Args:
        results: from :func:`eval_kit.protocols.variations.changes`; a system stands beside the ranker of its name.

    Returns:
        ``method`` (``original`` for the queries as they were), ``system``, ``published``, ``value``, ``queries``, in
        the paper's order; empty without results on the Veiled set at 50 %. A method that was applied once for each
        ranker counts only where it was applied for the one of the system's name.
    """
    cells = [(*_ranker_and_method(cell["system"]), float(cell["value"])) for cell in published_cells(_TABLE)]
    table = pl.DataFrame(cells, ["system", "method", "published"], orient="row")
    ours = results.filter(
        pl.col("test_set") == TEST_SET,
        pl.col("measure") == MEASURE,
        pl.col("queries_are") == "all",
        pl.col("method").str.starts_with("reformulation."),
    ).with_columns(method=pl.col("method").str.strip_prefix("reformulation.").str.replace_all("_", "-"))
    of_methods = ours.with_columns(
        method=pl.when(pl.col("method").str.ends_with(pl.concat_str(pl.lit("."), "system")))
        .then(pl.col("method").str.split(".").list.first())
        .otherwise("method")
    ).select("system", "method", "queries", value="varied")
    whole = ours.filter(pl.col("queries") == pl.col("queries").max()).unique(
        "system", keep="first", maintain_order=True
    )
    original = whole.select("system", "queries", value="clean", method=pl.lit(_ORIGINAL))
    both = pl.concat([of_methods, original.select(of_methods.columns)])
    with_paper = table.join(both, on=["system", "method"], maintain_order="left")
    return with_paper.select("method", "system", "published", "value", "queries")


def _ranker_and_method(system: str) -> tuple[str, str]:
    """``bm25+rm3`` is the ranker bm25 on the queries that rm3 rewrote."""
    ranker, _, method = system.partition("+")
    return ranker, method or _ORIGINAL
