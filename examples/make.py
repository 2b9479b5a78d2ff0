"""Make the files beside this one again, from mini's generator: ``python examples/make.py``.

The runs are BM25's (k1 0.9, b 0.4), and the same with noise on its scores, much of it on the queries of topic c3.
"""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

from builder import mini
from eval_kit.words import words

HERE = Path(__file__).parent
K1, B, DEPTH = 0.9, 0.4, 20
NOISE, NOISE_ON_C3 = 0.25, 4.0


def make() -> None:
    """Write queries, judgements and both runs."""
    tables = {table.key: table.frame for table in mini.draft(queries=1_500).tables}
    topics = tables["topic", "test"].with_columns(pl.col("cluster").cast(pl.String)).unique("query_id")
    qrels = tables["qrels", "topic_test"].sort("query-id", "corpus-id")
    queries = topics.filter(pl.col("query_id").is_in(qrels["query-id"].implode())).sort("query_id")
    (HERE / "qrels").mkdir(exist_ok=True)
    (HERE / "qrels" / "test.tsv").write_text(qrels.write_csv(separator="\t"))
    with (HERE / "queries.jsonl").open("w", encoding="utf-8") as file:
        for query, text, topic in queries.select("query_id", "text", "cluster").iter_rows():
            file.write(json.dumps({"_id": query, "text": text, "metadata": {"topic": topic}}) + "\n")
    passages = {key: Counter(words(text)) for key, text in tables["passages", "passages"].iter_rows()}
    average = sum(counts.total() for counts in passages.values()) / len(passages)
    holders = Counter(word for counts in passages.values() for word in counts)
    noise = np.random.default_rng(7)
    lines: dict[str, list[str]] = {"bm25": [], "noisy": []}
    for query, text, topic in queries.select("query_id", "text", "cluster").iter_rows():
        terms = {
            word: math.log(1 + (len(passages) - holders[word] + 0.5) / (holders[word] + 0.5)) for word in words(text)
        }
        scores = {}
        for key, counts in passages.items():
            if found := [word for word in terms if word in counts]:
                length = K1 * (1 - B + B * counts.total() / average)
                scores[key] = sum(terms[word] * counts[word] * (K1 + 1) / (counts[word] + length) for word in found)
        spread = NOISE_ON_C3 if topic == "c3" else NOISE
        noisy = {key: score + spread * float(noise.normal()) for key, score in scores.items()}
        for name, of_run in (("bm25", scores), ("noisy", noisy)):
            best = sorted(of_run, key=lambda key: (-of_run[key], key))[:DEPTH]
            lines[name] += [f"{query} Q0 {key} {at} {of_run[key]:.3f} {name}\n" for at, key in enumerate(best, 1)]
    for name, of_run in lines.items():
        (HERE / f"{name}.trec").write_text("".join(of_run))


if __name__ == "__main__":
    make()
