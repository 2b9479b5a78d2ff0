"""The published losses of five systems as one table, from the printed tables (``python docs/published.py``)."""

import re
from pathlib import Path

import polars as pl

from eval_kit.release.reference import load

PAGES = [Path(__file__).parents[1] / "README.md", Path(__file__).with_name("index.md")]
PLACE = re.compile("(?<=<!-- published losses -->\n).*?(?=<!-- end -->)", re.DOTALL)
_SYSTEMS = {
    "BM25": ("bm25", "bm25"),
    "bi-encoder": ("biencoder", "dr-base"),
    "SPLADE": ("splade", "splade"),
    "ColBERT": ("colbert", "colbert"),
    "monoBERT": ("monobert", "reranker"),
}
"""What ECIR 2023 and CIKM 2022 measured under each name."""
_SHIFTS = {"topic": "topics", "wh": "question words", "length": "lengths", "dev": "dev, by similarity (CIKM 2022)"}


def table() -> str:
    """RR@10 of each system and shift: the means of the printed In and Out over parts, and the loss between them."""
    tables = map(load, ("ecir2023-table2", "ecir2023-table3", "cikm2022-table7"))
    cells = pl.concat(pl.DataFrame(one["cells"], infer_schema_length=None) for one in tables)
    cells = cells.filter(measure="RR@10").with_columns(pl.col("test_set").str.split(".").list.first())
    sides = pl.col("figure").replace({"inter": "in", "extra": "out"})
    grouped = cells.group_by("system", "test_set", sides).agg(pl.col("value").mean() * 100)
    means = {tuple(key): value for *key, value in grouped.rows()}
    lines = [f"| RR@10 × 100, In → Out (Rel Loss) | {' | '.join(_SHIFTS.values())} |", "|---" * 5 + "|"]
    for name, (of_ecir, of_cikm) in _SYSTEMS.items():
        row = []
        for shift in _SHIFTS:
            of = of_cikm if shift == "dev" else of_ecir
            ends = [means.get((of, shift, side)) for side in ("in", "out")]
            if None in ends:
                row.append(f"{means[of, shift, 'value']:.1f}")
            else:
                row.append(f"{ends[0]:.1f} → {ends[1]:.1f} ({1 - ends[1] / ends[0]:.1%})")
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(PLACE.sub(table(), page.read_text(encoding="utf-8")), encoding="utf-8")
