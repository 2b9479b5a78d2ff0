"""Test queries that training queries give away: the same text, nearly the same text, or the same relevant passage."""

import unicodedata
from functools import cache

import polars as pl

from eval_kit.stats.distance import Trigrams

NEAR, PRECISION, RECALL = 0.61, 0.985, 0.972
"""The cosine of trigrams from which two queries are near-duplicates: the one with the greatest F1 on labelled pairs.

Its precision, with as many different pairs as duplicates, and its recall are those of
``bench/results/near_duplicates.json``; docs/audit.md describes the pairs.
"""


def with_normal(queries: pl.DataFrame) -> pl.DataFrame:
    """The queries with their :func:`normal_form` texts as ``normal``; null where there is no text."""
    normal = [None if text is None else normal_form(text) for text in queries["text"]]
    return queries.with_columns(normal=pl.Series(normal, dtype=pl.String))


def normal_form(text: str) -> str:
    """A text as compared for "the same query": NFKC, case folded, without apostrophes, words one space apart.

    All other punctuation (Unicode's categories P) separates words, as blanks do; symbols such as + are kept.
    """
    normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    words = "".join(map(_without_punctuation, normal)).split()
    return unicodedata.normalize("NFKC", " ".join(words))


def same_text(test: pl.DataFrame, train: pl.DataFrame, column: str) -> pl.DataFrame:
    """The test queries that are also training queries, by the column ``text`` or ``normal``.

    Returns:
        ``query_id``, ``text``, ``train_query_id``, ``train_text``: one row for each pair.
    """
    train_columns = train.select(pl.col(column), train_query_id="query_id", train_text="text")
    return test.join(train_columns, on=column).select("query_id", "text", "train_query_id", "train_text")


def near(test: pl.DataFrame, train: pl.DataFrame, least: float, label: str) -> pl.DataFrame:
    """The test queries with a near-duplicate among the training queries.

    Args:
        test: from :func:`with_normal`.
        train: likewise, with at least one row.
        least: the cosine from which two queries count as such.
        label: of the progress.

    Returns:
        ``query_id``, ``text``, ``train_query_id``, ``train_text``, ``cosine``, and ``same``, whether the two are equal
        when normalised; the nearest first, one row for each query.
    """
    index = Trigrams(train["text"].to_list())
    cosines = index.nearest(test["text"], label).select(train_text="nearest", cosine=pl.col("cosine").round(6))
    train_texts = train.select(train_query_id="query_id", train_text="text", train_normal="normal").unique("train_text")
    pairs = pl.concat([test, cosines], how="horizontal").filter(pl.col("cosine") >= least)
    pairs = pairs.join(train_texts, on="train_text", how="left").with_columns(
        same=pl.col("normal") == pl.col("train_normal")
    )
    columns = ("query_id", "text", "train_query_id", "train_text", "cosine", "same")
    return pairs.sort("cosine", "query_id", descending=[True, False]).select(columns)


@cache
def _without_punctuation(char: str) -> str:
    if char in "'\u2019":
        return ""
    return " " if unicodedata.category(char).startswith("P") else char
