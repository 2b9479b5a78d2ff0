"""How far queries are from training queries, by character trigrams: no model, no language, numpy alone.

Texts are vectors of tf-idf weights of trigrams, of unit length. The distance of a query to training
is 1 minus the cosine to its nearest training query; R(q, T) is the mean cosine to all of them
(ECIR 2023, equation 1, with trigrams for the encoder).
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.console import counting

type Floats = NDArray[np.float64]

_CHUNK = 256
"""Queries between two steps of progress."""
_DIMENSIONS, _ROUNDS = 96, 25
_COMMON = 0.3
"""Trigrams in more texts than this share say nothing of what a text is about."""


def to_training(queries: pl.DataFrame, training: Sequence[str]) -> pl.DataFrame:
    """The distance of each query to the training queries.

    Args:
        queries: ``query_id`` and ``text``.
        training: texts; equal ones count once.

    Returns:
        ``query_id``, ``nearest`` (text of the nearest training query), ``distance`` (0 to 1) and
        ``similarity`` (R, 0 to 1), in the order of the queries.
    """
    known = pl.Series("text", training, pl.String).unique(maintain_order=True)
    rows, terms, weights, vocabulary = _vectors(known, None)
    order = np.argsort(terms, kind="stable")
    starts = np.searchsorted(terms[order], np.arange(len(vocabulary) + 1))
    postings, sizes = rows[order].astype(np.int32), weights[order].astype(np.float32)
    centre = np.bincount(terms[order], sizes, len(vocabulary)) / max(len(known), 1)
    own_rows, own_terms, own_weights, _ = _vectors(queries["text"], vocabulary)
    bounds = np.searchsorted(own_rows, np.arange(queries.height + 1))
    nearest = np.zeros(queries.height, np.int64)
    cosine, mean = np.zeros(queries.height), np.zeros(queries.height)
    with counting("distance to training", "queries", queries.height) as advance:
        for row in range(queries.height):
            part = slice(bounds[row], bounds[row + 1])
            spans = [slice(starts[term], starts[term + 1]) for term in own_terms[part]]
            if spans:
                hits = np.concatenate([postings[span] for span in spans])
                products = [sizes[span] * weight for span, weight in zip(spans, own_weights[part], strict=True)]
                cosines = np.bincount(hits, np.concatenate(products))
                nearest[row] = cosines.argmax()
                cosine[row] = cosines[nearest[row]]
                mean[row] = float(centre[own_terms[part]] @ own_weights[part])
            if row % _CHUNK == _CHUNK - 1:
                advance(_CHUNK)
    return queries.select("query_id").with_columns(
        nearest=known.gather(pl.Series(nearest)),
        distance=pl.Series(1 - cosine.clip(0, 1)),
        similarity=pl.Series(mean),
    )


def small_parts(texts: pl.Series, parts: int, seed: int = 0) -> NDArray[np.int64]:
    """The number of each text's part, after k-means on its trigrams (projected at random).

    Args:
        texts: of the queries.
        parts: how many.
        seed: of the projection and of the first centres.
    """
    random = np.random.default_rng(seed)
    rows, terms, weights, vocabulary = _vectors(texts, None)
    signs = random.standard_normal((len(vocabulary), _DIMENSIONS)).astype(np.float32)
    points = np.zeros((len(texts), _DIMENSIONS), np.float32)
    for start in range(0, len(rows), 1 << 20):
        span = slice(start, start + (1 << 20))
        np.add.at(points, rows[span], signs[terms[span]] * weights[span, None].astype(np.float32))
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-9)
    centres = points[random.choice(len(points), min(parts, len(points)), replace=False)]
    nearest = np.zeros(len(points), np.int64)
    for _ in range(_ROUNDS):
        nearest = (points @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1)
        sizes = np.maximum(np.bincount(nearest, minlength=len(centres)), 1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        centres = (sums / sizes[:, None]).astype(np.float32)
    return nearest


def _vectors(
    texts: pl.Series, vocabulary: pl.DataFrame | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, pl.DataFrame]:
    """Row, term and weight of each trigram of each text, by row; and the vocabulary with its idf."""
    padded = pl.concat_str(pl.lit(" "), pl.col("text").str.to_lowercase(), pl.lit(" "))
    frame = texts.alias("text").to_frame().with_row_index("row").select("row", text=padded)
    longest = int(frame["text"].str.len_chars().max() or 0)  # type: ignore[arg-type]
    grams = pl.concat_list([pl.col("text").str.slice(start, 3) for start in range(max(longest - 2, 1))])
    counts = pl.concat(
        part.lazy()
        .select("row", term=grams)
        .explode("term")
        .filter(pl.col("term").str.len_chars() == 3)
        .group_by("row", "term")
        .len("count")
        .collect()
        for part in frame.iter_slices(20_000)
    )
    if vocabulary is None:
        most = max(2, int(_COMMON * len(texts)))
        vocabulary = (
            counts.group_by("term")
            .len("texts")
            .filter((pl.col("texts") <= most) | (pl.lit(len(texts)) < 50))
            .sort("term")
            .with_row_index("id")
            .with_columns(idf=(1 + len(texts) / pl.col("texts")).log())
        )
    known = counts.join(vocabulary, on="term").sort("row", "id")
    weight = (1 + pl.col("count").log()) * pl.col("idf")
    known = known.with_columns(weight=weight / (weight**2).sum().over("row").sqrt())
    columns = (known[name].to_numpy() for name in ("row", "id", "weight"))
    rows, terms, weights = columns
    return rows.astype(np.int64), terms.astype(np.int64), weights, vocabulary
