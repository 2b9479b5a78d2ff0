"""Rankings by brute force, of passages whose arrays are given."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from eval_kit.search import shards
from eval_kit.search.shards import Arrays, Shards
from tests.tiny_checkpoints import texts

PASSAGES = [(f"p{number}", "x" * (number % 7 + 1)) for number in range(30)]
CHANGED = [*PASSAGES[:9], ("p9", "another"), *PASSAGES[10:]]
QUERIES = pl.DataFrame({"query_id": [f"q{number}" for number in range(7)], "text": texts(7, 1, 6)})


def tokens(rows: list[np.ndarray]) -> Arrays:
    return {"tokens": np.concatenate(rows), "lengths": np.array([len(row) for row in rows], np.int32)}


def written(folder: Path, rows: list[np.ndarray], ids: list[str], arrays: Callable[..., Arrays] = tokens) -> Shards:
    rest = iter(rows)
    passages = ((passage, "text") for passage in ids)
    return shards.write(passages, folder, lambda some: arrays([next(rest) for _ in some]), "fixed")


def maxsim(query: np.ndarray, passage: np.ndarray) -> float | None:
    return float((query @ passage.T).max(axis=1).sum()) if len(passage) else None


def brute_force(
    queries: list[np.ndarray],
    rows: list[np.ndarray],
    ids: list[str],
    depth: int,
    score: Callable[..., float | None] = maxsim,
) -> list[list[tuple[str, float]]]:
    """Passages without a score are not ranked; among equal ones the greatest id is first, as trec_eval has it."""
    rankings = []
    for query in queries:
        scores = [(passage, score(query, row)) for passage, row in zip(ids, rows, strict=True)]
        hits = sorted([(passage, value) for passage, value in scores if value is not None], reverse=True)
        rankings.append(sorted(hits, key=lambda hit: -hit[1])[:depth])
    return rankings


def ragged(some: list[str]) -> Arrays:
    """As many rows a text as it has letters, and none for some."""
    lengths = [len(text) % 5 for text in some]
    rows = [[length, number] for length in lengths for number in range(length)]
    return {"rows": np.array(rows, np.int32).reshape(-1, 2), "lengths": np.array(lengths, np.int32)}
