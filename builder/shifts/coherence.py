"""Whether parts of queries are topics: topics are in the relevant passages too, function words are not."""

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from builder.assembly import Build
from builder.validation import draw_ids
from eval_kit.words import words

_MOST = 5_000
"""Queries looked at, at most."""
# test_splits.py: clusters by function words are told less often; test_own_data.py: SQuAD's articles and topics more
_WEAK = 2.0
"""Parts that are told less often than this multiple of shuffled ones are remarked on."""


def remark(build: Build, assignment: pl.DataFrame) -> str:
    """How often a query's part is told from the words of a relevant passage; else how far parts are the given ones.

    Naive Bayes (Rennie et al., ICML 2003) over TF-IDF learns from every other passage, and is asked about the queries
    of the rest. How close the vectors of a part are says less: queries that share function words are close as well.
    """
    passages, given = build.collection.passages, build.collection.parts
    nothing = "without passages nothing says whether the parts are topics"
    if passages is None or not build.collection.qrels:
        says = nothing if given is None else _beside_given(assignment.join(given, on="query_id"), build.seed)
        return f"topic: {says}"
    from sklearn.feature_extraction.text import TfidfVectorizer

    best = build.pairs("train").sort("score", "corpus-id", descending=[True, False]).unique("query-id", keep="first")
    rows = assignment.join(best, left_on="query_id", right_on="query-id")
    rows = rows.join(passages, left_on="corpus-id", right_on="passage_id").sort("query_id")
    rows = rows.filter(pl.col("query_id").is_in(draw_ids(rows["query_id"], _MOST, build.seed, "coherence").implode()))
    if rows["corpus-id"].n_unique() < 2:
        return f"topic: {nothing}"
    vectors = TfidfVectorizer(analyzer=words, sublinear_tf=True).fit_transform(rows["text"])
    learn = (rows["corpus-id"].rank("dense") % 2 == 0).to_numpy()
    labels = rows["cluster"].cast(pl.String).to_numpy()
    random_labels = np.random.Generator(np.random.PCG64(build.seed)).permutation(labels)
    real, chance = _right(vectors, labels, learn), _right(vectors, random_labels, learn)
    tells = f"topic: a relevant passage tells a query's part in {real:.0%} of cases, {chance:.0%} if shuffled"
    return tells + _caution(real, chance)


def _beside_given(rows: pl.DataFrame, seed: int) -> str:
    """How much parts say of the given ones, where there are no passages; ``rows`` have ``cluster`` and ``part``."""
    from sklearn.metrics import normalized_mutual_info_score

    labels = rows["cluster"].cast(pl.String).to_numpy()
    shuffled = np.random.Generator(np.random.PCG64(seed)).permutation(labels)
    real, chance = (normalized_mutual_info_score(rows["part"].to_numpy(), each) for each in (labels, shuffled))
    says = f"normalised mutual information with the given parts {real:.3f}, {chance:.3f} if shuffled"
    return says + _caution(real, chance)


def _caution(real: float, chance: float) -> str:
    return "; hardly better than chance: do not read them as topics" if real < _WEAK * chance else ""


def _right(vectors: csr_matrix, labels: np.ndarray, learn: np.ndarray) -> float:
    from sklearn.naive_bayes import ComplementNB

    predictions = ComplementNB().fit(vectors[learn], labels[learn]).predict(vectors[~learn])
    return float((predictions == labels[~learn]).mean())
