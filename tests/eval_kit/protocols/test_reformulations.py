"""Our systems beside Table 7 of MS MARCO Chameleons: the right cells."""

import polars as pl

from eval_kit.protocols.reformulations import beside_published


def results(*rows):
    columns = ["test_set", "measure", "queries_are", "method", "system", "clean", "varied", "queries"]
    full = [("chameleons.veiled.50", "AP", "all", *row) for row in rows]
    return pl.DataFrame(full, columns, orient="row")


OURS = results(
    ("reformulation.thesaurus", "bm25", 0.04, 0.041, 3_119),
    ("reformulation.rm3.bm25", "bm25", 0.04, 0.042, 3_119),
    ("reformulation.rm3.ance", "bm25", 0.04, 0.043, 3_119),
    ("reformulation.hred_qs", "bm25", 0.039, 0.001, 3_087),
    ("reformulation.rm3.tct_colbert", "tct-colbert", 0.08, 0.06, 3_119),
    ("typo.real", "bm25", 0.04, 0.01, 3_119),
)


def test_cells():
    table = beside_published(OURS)
    rows = {(row["method"], row["system"]): row for row in table.iter_rows(named=True)}
    assert {key: (row["published"], row["value"], row["queries"]) for key, row in rows.items()} == {
        ("original", "bm25"): (0.0392, 0.04, 3_119),
        ("original", "tct-colbert"): (0.078, 0.08, 3_119),
        ("rm3", "bm25"): (0.0407, 0.042, 3_119),
        ("rm3", "tct-colbert"): (0.061, 0.06, 3_119),
        ("thesaurus", "bm25"): (0.0412, 0.041, 3_119),
        ("hred-qs", "bm25"): (0.0006, 0.001, 3_087),
    }
    assert table["method"][0] == "original"


def test_nothing_elsewhere_and_beside_no_ranker():
    assert beside_published(OURS.with_columns(test_set=pl.lit("dev"))).is_empty()
    assert beside_published(OURS.with_columns(measure=pl.lit("RR@10"))).is_empty()
    assert beside_published(OURS.with_columns(system=pl.lit("late"))).is_empty()
