"""The wh-word shift: what, how and who queries (ECIR 2023 §3.1, "WH-Words Queries").

The published test sets follow, without exception, a rule on *substrings* of the lower-cased text, so a query
may be in several clusters ("tv show times" is in how).
"""

import polars as pl

TERMS = {
    "wha": ("what", "definition"),
    "how": ("how",),
    "who": ("who", "when", "where", "which"),
}
CLUSTERS = tuple(TERMS)
RULE = "in a cluster if the lower-cased text contains one of its terms as a substring; may be in several"
SOURCE = "ECIR 2023 §3.1; exact on the published EVAL/queries/queries_{wha,how,who}.tsv"


def member(texts: pl.Series, cluster: str) -> pl.Series:
    """Whether each query text is in ``cluster`` (boolean)."""
    return texts.str.to_lowercase().str.contains_any(list(TERMS[cluster]))
