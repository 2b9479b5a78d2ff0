"""Test queries that training queries give away: the same text, nearly the same text, or the same relevant passage."""

import unicodedata
from functools import cache

import polars as pl

from eval_kit.stats.distance import Trigrams

NEAR, PRECISION, RECALL = 0.61, 0.985, 0.972
"""The cosine of trigrams from which two queries are near-duplicates: the one with the greatest F1 on labelled pairs.

Its precision, with as many different pairs as duplicates, and its recall are those of
``bench/results/near_duplicates.json``; docs/contamination.md describes the pairs.
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


def with_same(test: pl.DataFrame, train: pl.DataFrame) -> pl.DataFrame:
    """The test queries with ``equal`` and ``normalised``: whether training has one of the same text, or normal form.

    Args:
        test: from :func:`with_normal`.
        train: likewise.
    """
    same = {"equal": "text", "normalised": "normal"}
    return test.with_columns(pl.col(column).is_in(train[column].implode()).alias(kind) for kind, column in same.items())


def with_near(test: pl.DataFrame, train: pl.DataFrame, least: float, label: str) -> pl.DataFrame:
    """The test queries with ``near``, ``nearest`` (text of the nearest training query, if any) and its ``cosine``.

    Args:
        test: ``text``.
        train: likewise, with at least one row.
        least: the cosine of trigrams from which two queries are near-duplicates.
        label: of the progress.
    """
    found = Trigrams(train["text"].to_list()).nearest(test["text"], label)
    cosine = found["cosine"].round(6)
    return test.with_columns(found["nearest"], cosine, near=cosine >= least)


@cache
def _without_punctuation(char: str) -> str:
    if char in "'\u2019":
        return ""
    return " " if unicodedata.category(char).startswith("P") else char
