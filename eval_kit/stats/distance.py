"""How far queries are from training queries, by character trigrams: no model, no language.

Texts are vectors of tf-idf weights of trigrams, of unit length. The distance of a query to training is 1 minus the
cosine to its nearest training query; R(q, T) is the mean cosine to all of them (ECIR 2023, equation 1, with trigrams
for the encoder).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.console import counting

type Integers = NDArray[np.integer[Any]]
type Floats = NDArray[np.floating[Any]]

_CHUNK = 256
"""Queries between two steps of progress."""
_DIMENSIONS, _ROUNDS = 96, 25
_COMMON = 0.3
"""Trigrams in more texts than this share say nothing of what a text is about."""
_FEW = 50
"""Texts below which all trigrams count."""


class Trigrams:
    """Texts by their trigrams, to find the nearest of them: an inverted index in memory. Equal texts count once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = pl.Series("text", texts, pl.String).unique(maintain_order=True)
        counts = _counts(self.texts)
        self._vocabulary = _vocabulary(counts, len(self.texts))
        rows, terms, weights = _vectors(counts, self._vocabulary, len(self.texts))
        order = np.argsort(terms, kind="stable")
        self._starts = np.searchsorted(terms[order], np.arange(len(self._vocabulary) + 1))
        self._rows, self._weights = rows[order], weights[order]
        self._mean = np.bincount(terms[order], self._weights, len(self._vocabulary)) / len(self.texts)

    def nearest(self, texts: pl.Series, label: str) -> pl.DataFrame:
        """The nearest of the index to each text; a trigram that the index lacks counts as the rarest.

        Returns:
            ``nearest`` (null where no trigram is shared), ``cosine`` to it, and ``similarity``, the mean cosine to all
            of the index (each 0 to 1), in the order of the texts.
        """
        rows, terms, weights = _vectors(_counts(texts), self._vocabulary, len(self.texts))
        bounds = np.searchsorted(rows, np.arange(len(texts) + 1))
        nearest = np.full(len(texts), -1)
        cosine, mean = np.zeros(len(texts)), np.zeros(len(texts))
        with counting(label, "queries", len(texts)) as advance:
            for row in range(len(texts)):
                of_text = slice(bounds[row], bounds[row + 1])
                spans = [slice(self._starts[term], self._starts[term + 1]) for term in terms[of_text]]
                if spans:
                    hits = np.concatenate([self._rows[span] for span in spans])
                    products = [self._weights[span] for span in spans]
                    of_terms = np.repeat(weights[of_text], list(map(len, products)))
                    cosines = np.bincount(hits, np.concatenate(products) * of_terms)
                    nearest[row] = cosines.argmax()
                    cosine[row] = cosines[nearest[row]]
                    mean[row] = float(self._mean[terms[of_text]] @ weights[of_text])
                if row % _CHUNK == _CHUNK - 1:
                    advance(_CHUNK)
        positions = pl.Series(nearest, dtype=pl.Int64)
        positions = positions.set(positions < 0, None)
        return pl.DataFrame({"nearest": self.texts.gather(positions), "cosine": cosine.clip(0, 1), "similarity": mean})


def to_training(queries: pl.DataFrame, training: pl.DataFrame) -> pl.DataFrame:
    """The distance of each query to the training queries.

    Args:
        queries: ``query_id`` and ``text``.
        training: the same; equal texts count once.

    Returns:
        ``query_id``, ``nearest`` (text of the nearest training query), ``distance`` (1 less the cosine) and
        ``similarity`` (R), in the order of the queries.
    """
    neighbours = Trigrams(training["text"].to_list()).nearest(queries["text"], "distance to training")
    distance = (1 - pl.col("cosine")).alias("distance")
    return pl.concat([queries.select("query_id"), neighbours], how="horizontal").select(
        "query_id", "nearest", distance, "similarity"
    )


def small_parts(texts: pl.Series, parts: int, seed: int = 0) -> Integers:
    """The number of each text's part, after k-means on its trigrams (projected at random, as are the first centres)."""
    random = np.random.default_rng(seed)
    rows, terms, weights, width = vectors(texts)
    signs = random.standard_normal((width, _DIMENSIONS)).astype(np.float32)
    points = np.zeros((len(texts), _DIMENSIONS), np.float32)
    for start in range(0, len(rows), 1 << 20):
        span = slice(start, start + (1 << 20))
        np.add.at(points, rows[span], signs[terms[span]] * weights[span, None])
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-9)
    return k_means(points, parts, random)


def k_means(points: NDArray[np.float32], count: int, random: np.random.Generator) -> Integers:
    """The number of each point's cluster, of at most so many; the first centres are drawn at random."""
    centres = points[random.choice(len(points), min(count, len(points)), replace=False)]
    nearest = np.zeros(len(points), np.int64)
    for _ in range(_ROUNDS):
        nearest = (points @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1)
        sizes = np.maximum(np.bincount(nearest, minlength=len(centres)), 1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        centres = (sums / sizes[:, None]).astype(np.float32)
    return nearest


def vectors(texts: pl.Series) -> tuple[Integers, Integers, Floats, int]:
    """Row, term and weight of each trigram of each text, by row, and how many terms there are; rows of unit length."""
    counts = _counts(texts)
    vocabulary = _vocabulary(counts, len(texts))
    return *_vectors(counts, vocabulary, len(texts)), len(vocabulary)


def _vectors(counts: list[pl.DataFrame], vocabulary: pl.DataFrame, texts: int) -> tuple[Integers, Integers, Floats]:
    """Row, term and weight of each trigram of each text, by row; ``texts`` is how many texts the vocabulary is of.

    Trigrams that the vocabulary lacks lengthen a vector, as they make a text unlike all that are known.
    """
    rarest = float(np.log(1 + texts))
    weight = (1 + pl.col("count").log()) * pl.col("idf").fill_null(rarest)
    parts = []
    for part in counts:
        with_weights = part.join(vocabulary, on="term", how="left").with_columns(weight=weight)
        with_weights = with_weights.with_columns(pl.col("weight") / (pl.col("weight") ** 2).sum().over("row").sqrt())
        with_weights = with_weights.filter(pl.col("id").is_not_null() & (pl.col("weight") > 0)).sort("row", "id")
        parts.append(with_weights.select("row", "id", pl.col("weight").cast(pl.Float32)))
    rows, terms, weights = (column.to_numpy() for column in pl.concat(parts))
    return rows, terms, weights


def _vocabulary(counts: list[pl.DataFrame], texts: int) -> pl.DataFrame:
    """``term``, ``id`` and ``idf`` of the trigrams counted; those that most of the texts have weigh nothing."""
    most = max(2, int(_COMMON * texts)) if texts >= _FEW else texts
    idf = (1 + texts / pl.col("texts")).log()
    of_parts = pl.concat(part.group_by("term").len("texts") for part in counts)
    vocabulary = of_parts.group_by("term").agg(pl.col("texts").sum()).sort("term").with_row_index("id")
    return vocabulary.select("term", "id", idf=pl.when(pl.col("texts") <= most).then(idf).otherwise(0.0))


def _counts(texts: pl.Series) -> list[pl.DataFrame]:
    """``row``, ``term`` and ``count`` of the trigrams of each text, in lower case and with a blank at either end.

    In parts, by row: a table of all at once would take gigabytes.
    """
    with_spaces = pl.concat_str(pl.lit(" "), pl.col("text").str.to_lowercase(), pl.lit(" "))
    frame = texts.alias("text").to_frame().with_row_index("row").select("row", text=with_spaces)
    of_one_text = pl.col("row") == pl.col("row").shift(-2)
    three = pl.concat_str("letter", pl.col("letter").shift(-1), pl.col("letter").shift(-2))
    return [
        part.lazy()
        .select("row", letter=pl.col("text").str.split(""))
        .explode("letter")
        .filter(pl.col("letter") != "")
        .select("row", term=pl.when(of_one_text).then(three))
        .drop_nulls("term")
        .group_by("row", "term")
        .len("count")
        .collect()
        for part in frame.iter_slices(20_000)
    ]
