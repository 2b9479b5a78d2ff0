"""The judgements of mini: one passage per query, and many graded ones for each TREC DL query."""

import numpy as np
import polars as pl

from builder.sources.mini.intents import Intents
from builder.sources.mini.lexicon import Ints
from builder.sources.mini.passages import Passages
from builder.sources.mini.planted import ASPECTS

JUDGED = (20, 60)


def judge(rng: np.random.Generator, query_ids: pl.Series, intents: Intents, passages: Passages) -> pl.DataFrame:
    """Judge one passage for each query, and many for each TREC DL query."""
    grades = intents.is_graded
    sparse = np.flatnonzero(~grades)
    judgements = [(sparse, passages.answer[sparse], np.ones(len(sparse), np.int64))]
    for row in np.flatnonzero(grades):
        rows, scores = _judge_track_query(rng, passages.answer[row], passages.pair, passages.topic)
        judgements.append((np.full(len(rows), row), rows, scores))
    query_rows, passage_rows, scores = map(np.concatenate, zip(*judgements, strict=True))
    return pl.DataFrame(
        {"query_id": query_ids.gather(query_rows), "passage_id": passages.ids.gather(passage_rows), "score": scores}
    )


def _judge_track_query(rng: np.random.Generator, answer: int, about: Ints, topic: Ints) -> tuple[Ints, Ints]:
    """Judge 20 to 60 passages for the dl query that row `answer` answers: passage rows and grades 0..3."""
    low, high = JUDGED
    same_entity = about // ASPECTS == about[answer] // ASPECTS
    same_topic = np.flatnonzero(same_entity)
    score = np.where(about[same_topic] == about[answer], 2, 1)
    score[same_topic == answer] = 3
    best = np.argsort(-score, kind="stable")[: high - 5]
    same_topic, score = same_topic[best], score[best]
    missing = int(rng.integers(max(low, len(same_topic) + 5), high + 1)) - len(same_topic)
    strangers = rng.choice(np.flatnonzero((topic == topic[answer]) & ~same_entity), missing, replace=False)
    return np.concatenate([same_topic, strangers]), np.concatenate([score, np.zeros(missing, np.int64)])
