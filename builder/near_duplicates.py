"""Nearest neighbours of texts or vectors by cosine, in blocks: memory never grows with the product of two sizes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Rows = Any
"""(n, d): a dense array (or memory map), or a sparse CSR matrix."""

BLOCK = 2_048
"""Rows of one side in a block of cosines: 32 MiB for two sides."""


@dataclass(frozen=True)
class Threshold:
    """The cosine from which two queries count as near-duplicates, and its quality on labelled pairs.

    Attributes:
        cosine: with the greatest F1.
        precision: on as many different pairs as duplicates.
        recall: mean of the recall on reworded pairs and on pairs that differ by a typing error.
    """

    cosine: float
    precision: float
    recall: float


THRESHOLDS = {
    "characters": Threshold(0.63, 0.988, 0.976),
    "words": Threshold(0.52, 0.949, 0.927),
    "lsa": Threshold(0.79, 0.623, 0.816),
}
"""By encoder, as in ``bench/results/near_duplicates.json``; docs/audit.md describes the pairs."""


def characters(texts: Sequence[str]) -> csr_matrix:
    """TF-IDF of the texts' character trigrams (case folded, across words), in rows of unit length.

    A typing error or another ending changes only three trigrams, where it changes a whole word.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char", ngram_range=(3, 3), sublinear_tf=True).fit_transform(texts)


def words(texts: Sequence[str]) -> csr_matrix:
    """TF-IDF of the texts' words (case folded; single letters too), in rows of unit length.

    Rare words weigh most, so that "who is X" is near to "X who is" and far from "who is Y". (An LSA of 128 dimensions
    does not capture rare words: to it "who is X" and "who is Y" are one query.)
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(token_pattern=r"\w+", sublinear_tf=True).fit_transform(texts)


def nearest(rows: Rows, candidates: Rows, advance: Callable[[int], object] = lambda count: None) -> tuple[Floats, Ints]:
    """The nearest of the ``candidates`` to each of the ``rows``.

    Args:
        rows: (n, d).
        candidates: (m, d), m at least 1. A vector of zeros has a cosine of 0 with all others.
        advance: called with how many more of the ``candidates`` were compared.

    Returns:
        The cosines (n,), and the rows of ``candidates`` (n,); among those equally near but for rounding, any one.
    """
    best, at = np.full(rows.shape[0], -np.inf), np.zeros(rows.shape[0], np.int64)
    for candidate_rows in _parts(candidates):
        block = _unit(candidates[candidate_rows])
        for part in _parts(rows):
            products = _unit(rows[part]) @ block.T
            if issparse(products):
                products = products.toarray()
            top = products.argmax(axis=1)
            value = products[np.arange(len(top)), top]
            better = value > best[part]
            best[part][better], at[part][better] = value[better], candidate_rows.start + top[better]
        advance(block.shape[0])
    for part in _parts(rows):  # again, without a block's rounding
        best[part] = cosines(rows[part], candidates[at[part]])
    return best, at


def cosines(left: Rows, right: Rows) -> Floats:
    """The cosine of each row of one side with the same row of the other: (n,)."""
    return _dots(_unit(left.astype(np.float64)), _unit(right.astype(np.float64)))


def _parts(rows: Rows) -> Iterator[slice]:
    count = rows.shape[0]
    return (slice(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK))


def _dots(left: Rows, right: Rows) -> Floats:
    if issparse(left):
        return np.asarray(left.multiply(right).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", left, right))


def _unit(rows: Rows) -> Rows:
    from sklearn.preprocessing import normalize

    return normalize(rows)
