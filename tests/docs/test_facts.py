"""Figure 3's correlations in docs/protocol.md, recomputed from the authors' files by numpy, scipy and plain Python."""

import json
from collections import Counter
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from eval_kit.stats import p_values

PUBLISHED = Path(__file__).parents[2] / "eval_kit" / "release" / "printed_tables"
CLUSTERS = {"topic": ["0", "1", "2", "3", "4"], "wh": ["wha", "how", "who"], "length": ["short", "long"]}


def texts(path: Path) -> dict[str, str]:
    return dict(line.split("\t", 1) for line in path.read_text(encoding="utf-8").splitlines() if "\t" in line)


def shift_queries(shared: Path, part: str) -> dict[str, str]:
    return texts(shared / "upstream" / "naver" / "ms-marco-shift" / "EVAL" / "queries" / f"queries_{part}.tsv")


def table(paper: str, name: str) -> list[dict]:
    tables = json.loads((PUBLISHED / f"{paper}.json").read_text(encoding="utf-8"))["tables"]
    return next(table["cells"] for table in tables if table["id"] == name)


def similarity(cluster: list[str], others: list[str]) -> float:
    """Jaccard's, of how often each word comes."""
    first, second = (Counter(" ".join(queries).lower().split()) for queries in (cluster, others))
    words_of_both = first.keys() | second.keys()
    shares = np.array([[counts[word] / counts.total() for word in words_of_both] for counts in (first, second)])
    return fsum(shares.min(axis=0)) / fsum(shares.max(axis=0))  # equal for two parts of a shift, in any order of words


def test_published_losses_follow_similarity(shared: Path):
    """Over the eight clusters of topics and question words, over topics, and over all ten."""
    similarities: dict[str, float] = {}
    for shift, parts in CLUSTERS.items():
        queries = {part: list(shift_queries(shared, part).values()) for part in parts}
        for part in parts:
            others = [text for other in parts if other != part for text in queries[other]]
            similarities[f"{shift}.{'c' * (shift == 'topic')}{part}"] = similarity(queries[part], others)
    cells = table("ecir2023", "ecir2023-table2") + table("ecir2023", "ecir2023-table3")
    losses: dict[str, dict[str, float]] = {}
    for cell in cells:
        if (cell["measure"], cell["figure"]) == ("RR@10", "loss"):
            losses.setdefault(cell["system"], {})[cell["test_set"]] = cell["value"]
    for system, expected in {
        "biencoder": (-0.85, -0.40, -0.77),
        "splade": (-0.88, -0.90, -0.85),
        "colbert": (-0.90, -0.70, -0.85),
        "monobert": (-0.81, -0.30, -0.32),
    }.items():
        for shifts, correlation in zip((("topic", "wh"), "topic", tuple(CLUSTERS)), expected, strict=True):
            chosen = [name for name in similarities if name.startswith(shifts)]
            result = stats.spearmanr(*([of[name] for name in chosen] for of in (similarities, losses[system])))
            assert result.statistic == pytest.approx(correlation, abs=0.006)
            pair = [stats.rankdata([of[name] for name in chosen]) for of in (similarities, losses[system])]
            p = p_values.of_rho(*pair, correlation)
            assert len(chosen) == 10 or (p < 0.03) == (len(chosen) == 8)
