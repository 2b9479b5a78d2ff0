"""Which encoder and threshold find near-duplicate queries.

Duplicates are the seven pairs of CIKM 2022, Table 4, and dev queries with their typing errors (CharacterBERT-DR's ten
replicas). Different pairs are random pairs of dev queries, and each query with its nearest dev query, by any encoder
without weights, that has other words and shares no relevant passage with it.
``bench/results/near_duplicates.json`` holds what was measured.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from builder.encoders import Lsa
from eval_kit.files.formats import read_queries, read_trec_qrels
from eval_kit.stats import distance
from eval_kit.stats.leaks import normal_form

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "near_duplicates.json"
DEV = Path("ielab/CharacterBERT-DR/data/marco_dev")
REPLICAS = 10
QUERIES = 1_000
NEAREST = 6
SEED = 13
GRID = np.arange(0.30, 1.0, 0.01).round(2)
TABLE_4 = [
    ("average wedding dress alteration cost", "average cost for wedding dress alterations"),
    ("what does it mean if your tsh is low", "what does it mean if my tsh is low"),
    ("meaning of shebang", "what is a shebang"),
    ("do google docs auto save", "does google docs automatically save"),
    ("how long does it take to remove wisdom tooth", "how long does it take to have wisdom teeth removed"),
    ("how much would it cost to install my own wind turbine", "how much does it cost to install a wind turbine"),
    ("when did rock n roll begin?", "when did rock and roll begin"),
]
"""CIKM 2022, Table 4: pairs of a TREC DL 2020 test query and a training query."""

type Pairs = list[tuple[str, str]]
type Floats = NDArray[np.float64]
type Rows = Any
"""(n, d): a dense array, or a sparse CSR matrix."""


def trigrams(texts: Sequence[str]) -> Rows:
    """The kit's own."""
    rows, terms, weights, width = distance.vectors(pl.Series("text", texts))
    return csr_matrix((weights, (rows, terms)), shape=(len(texts), width))


ENCODERS: dict[str, Callable[[list[str]], Rows]] = {
    "trigrams": trigrams,
    "characters": TfidfVectorizer(analyzer="char", ngram_range=(3, 3), sublinear_tf=True).fit_transform,
    "words": TfidfVectorizer(token_pattern=r"\w+", sublinear_tf=True).fit_transform,  # single letters too
    "lsa": lambda texts: Lsa().load(texts)(texts),
}


def cosines(left: Rows, right: Rows) -> Floats:
    """The cosine of each row of one side with the same row of the other: (n,)."""
    left, right = normalize(left.astype(np.float64)), normalize(right.astype(np.float64))
    products = left.multiply(right) if issparse(left) else left * right
    return np.asarray(products.sum(axis=1)).ravel()


def typing_errors(upstream: Path, queries: pl.DataFrame) -> Pairs:
    """Each query with its variant in one of the replicas, taken in turn; only pairs that differ."""
    replicas = []
    for number in range(1, REPLICAS + 1):
        replica = read_queries(upstream / DEV / f"queries.dev.small.typo{number}.tsv")
        replicas.append(dict(replica.select("query_id", "text").iter_rows()))
    pairs = [(text, replicas[row % REPLICAS][query]) for row, (query, text) in enumerate(queries.iter_rows())]
    return [(text, variant) for text, variant in pairs if text != variant]


def nearest_but_different(
    dev: pl.DataFrame, sampled: Sequence[int], passages: Mapping[str, set[str]], vectors: Rows
) -> Pairs:
    """The query of each sampled row of ``dev`` with its nearest other one (``vectors`` has rows of unit length).

    It has other words, and no relevant passage in common.
    """
    ids, texts = dev["query_id"].to_list(), dev["text"].to_list()
    products = vectors[sampled] @ vectors.T
    products = products if isinstance(products, np.ndarray) else products.toarray()
    pairs = []
    for row, similar in zip(sampled, np.argsort(-products, axis=1, kind="stable")[:, :NEAREST], strict=True):
        for candidate in similar:
            other_words = normal_form(texts[candidate]) != normal_form(texts[row])
            if other_words and not passages[ids[candidate]] & passages[ids[row]]:
                pairs.append((texts[row], texts[candidate]))
                break
    return pairs


def best_threshold(reworded: Floats, mistyped: Floats, different: Floats) -> dict[str, float]:
    """The threshold with the greatest F1 (the lowest of equals), for as many different pairs as duplicates."""
    recall = (_shares(reworded) + _shares(mistyped)) / 2
    alarms = _shares(different)
    best = int(np.argmax(2 * recall / (1 + recall + alarms)))
    precision = float(recall[best] / (recall[best] + alarms[best]))
    return {"cosine": float(GRID[best]), "precision": round(precision, 3), "recall": round(float(recall[best]), 3)}


def _shares(cosines: Floats) -> Floats:
    """The share of the pairs that each threshold takes for duplicates."""
    return (cosines >= GRID[:, None]).mean(axis=1)


def measure(upstream: Path) -> dict[str, dict[str, Any]]:
    """Each encoder's best threshold, with the share of each kind of pair that counts as duplicate."""
    dev = read_queries(upstream / DEV / "queries.dev.small.tsv").select("query_id", "text").sort("query_id")
    qrels = read_trec_qrels(upstream / DEV / "qrels.dev.small.tsv").filter(pl.col("score") > 0)
    passages = {str(query): set(group["corpus-id"]) for (query,), group in qrels.group_by("query-id")}
    order = np.random.default_rng(SEED).permutation(dev.height)[: 2 * QUERIES]
    sampled, texts = np.sort(order[:QUERIES]).tolist(), dev["text"].gather(order).to_list()
    random = list(zip(texts[::2], texts[1::2], strict=True))
    pairs = {"table 4": TABLE_4, "typing errors": typing_errors(upstream, dev[sampled]), "random": random}
    texts = sorted({*dev["text"], *(text for pair in chain(*pairs.values()) for text in pair)})
    row_of = {text: row for row, text in enumerate(texts)}
    vectors = {name: encode(texts) for name, encode in ENCODERS.items()}
    of_dev = [row_of[text] for text in dev["text"]]
    nearest = [nearest_but_different(dev, sampled, passages, rows[of_dev]) for rows in vectors.values()]
    pairs["nearest but different"] = sorted(set(chain(*nearest)))
    results = {}
    for name, rows in vectors.items():
        by_kind = {}
        for kind, some in pairs.items():
            left, right = zip(*some, strict=True)
            by_kind[kind] = cosines(rows[[row_of[text] for text in left]], rows[[row_of[text] for text in right]])
        best = best_threshold(by_kind["table 4"], by_kind["typing errors"], by_kind["nearest but different"])
        shares = {kind: round(float((values >= best["cosine"]).mean()), 3) for kind, values in by_kind.items()}
        results[name] = {**best, "taken for duplicates": shares}
    return {"pairs": {kind: len(some) for kind, some in pairs.items()}, "encoders": results}
