"""The query-length shift: short and long queries (ECIR 2023 §3.1, "Short and Long Queries").

The paper splits at the median of 6 words; the published test sets follow, without exception, the rule
"short if splitting at single spaces gives at most 5 words" (double spaces therefore count).
"""

import polars as pl

CLUSTERS = ("short", "long")
LONGEST_SHORT = 5
RULE = f"short if len(text.split(' ')) <= {LONGEST_SHORT}, else long"
SOURCE = "ECIR 2023 §3.1; exact on the published EVAL/queries/queries_{short,long}.tsv"


def cluster(texts: pl.Series) -> pl.Series:
    """The cluster, ``short`` or ``long``, of each query text."""
    words = texts.str.count_matches(" ", literal=True) + 1
    return (
        pl.select(pl.when(words <= LONGEST_SHORT).then(pl.lit("short")).otherwise(pl.lit("long")))
        .to_series()
        .cast(pl.Enum(CLUSTERS))
        .alias("cluster")
    )
