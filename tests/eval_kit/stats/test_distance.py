"""Distance to training queries, beside plain Python; and parts of similar queries."""

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest

from eval_kit.stats import distance

TRAINING = [
    "what is the capital of france",
    "how to bake bread",
    "Wie hoch ist der Brocken",
    "北京有多少人口",
    "how to bake bread",
]
QUERIES = [
    "how to bake a cake",
    "what is the capital of spain",
    "北京在哪里",
    "HOW TO BAKE BREAD",
    "how to bake bread in xylophones",
    "zzz",
    "ab",
]


def trained_on() -> pl.DataFrame:
    return pl.DataFrame({"query_id": [f"t{row}" for row in range(len(TRAINING))], "text": TRAINING})


def grams(text: str) -> Counter[str]:
    padded = f" {text.lower()} "
    return Counter(padded[start : start + 3] for start in range(len(padded) - 2))


def unit(counts: Counter[str], documents: Counter[str], number: int) -> dict[str, float]:
    weights = {
        gram: (1 + math.log(count)) * math.log(1 + number / max(documents[gram], 1)) for gram, count in counts.items()
    }
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    return {gram: weight / length for gram, weight in weights.items()}


def test_distances_are_those_of_plain_python():
    known = list(dict.fromkeys(TRAINING))
    documents = Counter(gram for text in known for gram in grams(text))
    vectors = [unit(grams(text), documents, len(known)) for text in known]
    frame = pl.DataFrame({"query_id": [str(row) for row in range(len(QUERIES))], "text": QUERIES})
    ours = distance.to_training(frame, trained_on())
    for query, row in zip(QUERIES, ours.iter_rows(named=True), strict=True):
        own = unit(grams(query), documents, len(known))
        cosines = [sum(own.get(gram, 0) * weight for gram, weight in vector.items()) for vector in vectors]
        assert row["distance"] == pytest.approx(1 - max(cosines), abs=1e-6)
        assert row["similarity"] == pytest.approx(sum(cosines) / len(cosines), abs=1e-6)
        assert row["nearest"] == (known[int(np.argmax(cosines))] if max(cosines) > 0 else None)
    of_query = dict(zip(QUERIES, ours["distance"], strict=True))
    assert of_query["HOW TO BAKE BREAD"] == pytest.approx(0, abs=1e-6)  # it was trained on
    assert of_query["how to bake bread in xylophones"] > 0.2


def test_parts_hold_similar_queries_together_and_follow_from_the_seed():
    subjects = np.array(["volcano eruption", "bicycle repair", "苹果电脑", "Blumenkohl kochen", "tax return"] * 40)
    texts = pl.Series([f"{subject} {row}" for row, subject in enumerate(subjects)])
    numbers = distance.small_parts(texts, 15)
    assert (distance.small_parts(texts, 15) == numbers).all()
    most = [Counter(subjects[numbers == part].tolist()).most_common(1)[0][1] for part in np.unique(numbers)]
    assert sum(most) >= 0.9 * len(texts)
