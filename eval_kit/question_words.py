"""Question words by language, which the wh shift clusters queries by."""

import re
from collections.abc import Mapping

import polars as pl

from eval_kit.words import SPACELESS

_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_]*")

type Terms = Mapping[str, tuple[str, ...]]

ENGLISH = "en"
TERMS: dict[str, Terms] = {
    ENGLISH: {"wha": ("what", "definition"), "how": ("how",), "who": ("who", "when", "where", "which")},
    "de": {
        "wha": ("was", "bedeutung", "definition"),
        "how": ("wie", "wieviel", "wieviele"),
        "who": ("wer", "wen", "wem", "wann", "wo", "welche", "welcher", "welches", "welchem", "welchen"),
    },
    "fr": {
        "wha": ("que", "quoi", "qu'est", "définition"),
        "how": ("comment", "combien"),
        "who": ("qui", "quand", "où", "quel", "quelle", "quels", "quelles"),
    },
    "es": {
        "wha": ("qué", "definición"),
        "how": ("cómo", "cuánto", "cuánta", "cuántos", "cuántas"),
        "who": ("quién", "quiénes", "cuándo", "dónde", "cuál", "cuáles"),
    },
    "zh": {
        "wha": ("什么", "什麼", "定义"),
        "how": ("怎么", "怎麼", "怎样", "如何", "多少", "几"),
        "who": ("谁", "誰", "哪", "何时", "何地"),
    },
}
"""Language → cluster → terms; the English ones are the papers'."""


def parse(text: str) -> Terms:
    """The terms in ``wha:was|welche,how:wie``; ValueError for anything else, or a cluster that no test set can be."""
    clusters: dict[str, tuple[str, ...]] = {}
    for part in text.lower().split(","):
        cluster, _, term_list = map(str.strip, part.partition(":"))
        terms = tuple(map(str.strip, term_list.split("|")))
        if ":" in term_list or cluster in clusters or not _CLUSTER.fullmatch(cluster) or not all(terms):
            raise ValueError(text)
        clusters[cluster] = terms
    return clusters


def contains(texts: pl.Expr, terms: tuple[str, ...], whole_words: bool) -> pl.Expr:
    """Whether texts hold one of the terms; a term in a script without spaces needs no ends of words.

    Whole words are compared in Unicode's composed form, as accents may be characters of their own.
    """
    lower_case = texts.str.to_lowercase()
    if not whole_words:
        return lower_case.str.contains_any(list(terms))
    lower_case, terms = lower_case.str.normalize("NFC"), tuple(pl.Series(terms).str.normalize("NFC"))
    spaceless = pl.Series(terms).str.contains(SPACELESS)
    literal = map(pl.escape_regex, terms)
    patterns = [term if free else rf"\b{term}\b" for term, free in zip(literal, spaceless, strict=True)]
    return lower_case.str.contains("|".join(patterns))
