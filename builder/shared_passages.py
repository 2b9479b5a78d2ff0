"""TREC DL queries that share relevant passages with a release's training queries (CIKM 2022 §3.2, Table 3)."""

from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.release.reference import published
from eval_kit.shift import TREC_DL
from eval_kit.tables.table import Column, Table

GRADES = (3, 2, 1)
PAPER = "cikm2022-table3"


def shared(release: Release) -> dict[str, Any]:
    """Count the queries of each TREC DL year whose relevant passages are labelled relevant to a training query.

    The training queries are all that have judgements in the release: the train splits and ReSTrain's lists. The paper
    defines the overlap by "at least one" shared passage; its script counts from two on, and its figures fit the script.

    Returns:
        ``training_queries``; ``rows`` with ``test_set``, ``grade`` (the lowest that counts as relevant), ``queries``,
        ``at_least_one`` and ``at_least_two`` (shares of the queries) and ``published`` (the paper's share; None for
        a release whose queries are not the authors').

    Raises:
        UserError: the release has no training judgements, or no TREC DL year.
    """
    splits = [split for split in release.configs.get("qrels", []) if split == "train" or split.startswith("restrain_")]
    years = [year for year in TREC_DL if year in release.test_sets]
    if not splits or not years:
        lacking = "judgements of training queries" if years else f"test set {' or '.join(TREC_DL)}"
        raise UserError(f"{release.folder}: holds no {lacking}")
    labelled = pl.concat(release.qrels(split) for split in splits).filter(pl.col("relevance") >= 1)
    cells = published(PAPER) if release.manifest.kind == "published" else []
    printed = {(cell["test_set"], cell["measure"]): cell["value"] for cell in cells}
    rows = []
    for year in years:
        test_set = release.test_sets[year]
        judged = release.qrels(test_set.qrels).join(test_set.queries.to_frame(), on="query_id", how="semi")
        trained = judged.join(labelled.select("passage_id").unique(), on="passage_id", how="semi")
        for grade in GRADES:
            passages = trained.filter(pl.col("relevance") >= grade).group_by("query_id").len()["len"]
            rows.append(
                {
                    "test_set": year,
                    "grade": grade,
                    "queries": len(test_set.queries),
                    "at_least_one": len(passages) / len(test_set.queries),
                    "at_least_two": int((passages >= 2).sum()) / len(test_set.queries),
                    "published": printed.get((year, f"overlap(rel={grade})")),
                }
            )
    return {"training_queries": labelled["query_id"].n_unique(), "rows": rows}


def layout(document: dict[str, Any]) -> Table:
    """The counts as a table, with the paper's figures in the last column."""
    names = ("grade", "queries", "at least one", "at least two", "published")
    lines = []
    for row in document["rows"]:
        shares = [row[name] for name in ("at_least_one", "at_least_two", "published")]
        shown = ["–" if share is None else f"{share:.0%}" for share in shares]
        lines.append([row["test_set"], f"\u2265 {row['grade']}", str(row["queries"]), *shown])
    title = (
        "Test queries that share a relevant passage with training queries (CIKM 2022, Table 3): "
        f"{document['training_queries']:,} training queries, in the paper 502,939"
    )
    return Table([Column("test set"), *(Column(name, "number") for name in names)], [lines], title)
