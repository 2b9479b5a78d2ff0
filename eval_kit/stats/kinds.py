"""Kinds of query that nobody named: what their texts say, how they begin, and clusters of what they are about."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.languages import function_words
from eval_kit.stats.distance import Floats, Integers, k_means
from eval_kit.words import words

type Kinds = dict[str, Integers]
"""The rows of the queries of each kind, ascending, by what the kind is called."""

# no experiment chose these: numbers of clusters that double, from broad to narrow, in as many dimensions as the most
_CLUSTERS = (8, 16, 32, 64)
_DIMENSIONS = 64
# ten more than are kept, and four rounds: the error of the best approximation (Halko et al. 2011, §§ 4.2, 4.5)
_MORE, _ROUNDS = 10, 4
# no experiment chose these two: words of a text or two bring clusters of typing errors; four words fit into a row
_RARE = 3
"""Texts that have a word, below which it says nothing of what others are about."""
_TYPICAL = 4
"""Words that name a cluster."""


def kinds(texts: pl.Series, fewest: int, seed: int = 0) -> Kinds:
    """The kinds of query that the texts show, in any language.

    Kinds are words and pairs of neighbouring words, unless all are function words; how queries begin, by one word and
    by two; and k-means of latent semantic analysis (Deerwester et al. 1990) of the words, into 8 to 64 clusters.

    Args:
        texts: of the queries.
        fewest: queries that a kind has, at least.
        seed: of the clusters.
    """
    says: dict[str, list[int]] = {}
    begins: dict[str, list[int]] = {}
    stop = function_words()
    for row, found in enumerate(map(words, texts)):
        pairs = {f"{one} {other}" for one, other in pairwise(found) if one not in stop or other not in stop}
        for term in pairs.union(found).difference(stop):
            says.setdefault(term, []).append(row)
        for length in range(1, 1 + min(2, len(found))):
            begins.setdefault(" ".join(found[:length]), []).append(row)
    of_texts = {f"says “{term}”": np.array(says[term]) for term in sorted(says)}
    of_texts |= {f"begins “{start}”": np.array(begins[start]) for start in sorted(begins)}
    known = {term: np.array(says[term]) for term in sorted(says) if " " not in term and len(says[term]) >= _RARE}
    of_texts |= dict(_clusters(known, len(texts), seed))
    return {name: rows for name, rows in of_texts.items() if len(rows) >= fewest}


def _clusters(said: Kinds, texts: int, seed: int) -> Iterator[tuple[str, Integers]]:
    """The clusters of the texts, called by the words that are most typical of each."""
    if len(said) <= _DIMENSIONS + _MORE:
        return
    random = np.random.default_rng(seed)
    names, sizes = list(said), np.array([len(rows) for rows in said.values()])
    rows, columns = np.concatenate(list(said.values())), np.repeat(np.arange(len(names)), sizes)
    points = _latent(rows, columns, np.log(texts / sizes)[columns], texts, random)
    for count in _CLUSTERS:
        nearest = k_means(points, count, random)
        for cluster in range(count):
            members = np.flatnonzero(nearest == cluster)
            inside = np.bincount(columns[nearest[rows] == cluster], minlength=len(names))
            typical = np.argsort(sizes / texts - inside / max(len(members), 1), kind="stable")[:_TYPICAL]
            yield f"about {', '.join(names[each] for each in typical)}", members


def _latent(
    rows: Integers, columns: Integers, weights: Floats, texts: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """The texts (texts, dimensions), of unit length, by a singular value decomposition of their weighted terms."""

    def times(left: Integers, right: Integers, height: int, matrix: Floats) -> Floats:
        return np.stack([np.bincount(left, weights * each[right], height) for each in matrix.T], axis=1)

    width = int(columns.max()) + 1
    basis: Floats = random.standard_normal((width, _DIMENSIONS + _MORE))
    for _ in range(_ROUNDS):
        basis = np.linalg.qr(times(columns, rows, width, times(rows, columns, texts, basis)))[0]
    left = np.linalg.qr(times(rows, columns, texts, basis))[0]
    _, values, turned = np.linalg.svd(times(columns, rows, width, left), full_matrices=False)
    points = left @ turned.T * values
    points = points[:, :_DIMENSIONS]
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.maximum(lengths, 1e-9), np.float32)
