"""Evaluators for trainers: the library's own, of all four kinds; figures are trec_eval's on the same rankings."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sentence_transformers")
import pytrec_eval
import sentence_transformers as st

from eval_kit.errors import UserError
from eval_kit.integrations.sentence_transformers import CANDIDATES, evaluator, of_library
from eval_kit.release import Release
from tests.tiny_checkpoints import bag_of_word_pieces, passages, texts, tiny

KINDS = {"dense": "SentenceTransformer", "sparse": "SparseEncoder", "multivector": "MultiVectorEncoder"}


QUERIES = {f"q{row}": text for row, text in enumerate(texts(12, seed=7, longest=6))}
PASSAGES = dict(passages(60))
QRELS = {query: {f"p{(row * 5 + step) % 60}": 1 for step in range(3)} for row, query in enumerate(QUERIES)}


def by_trec_eval(run: Mapping[str, Mapping[str, float]], qrels: Any = QRELS, queries: Iterable[str] = QUERIES) -> float:
    """RR@10 of all these queries."""
    values = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run)
    found = [values[query]["recip_rank"] if query in values else 0 for query in queries]
    return float(np.mean([value if value >= 0.1 else 0 for value in found]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "cross"])
def test_every_kind_of_model_has_the_figures_of_its_search(kind: str, tmp_path: Path) -> None:
    from eval_kit.models.opening import retriever

    model = getattr(st, KINDS.get(kind, "CrossEncoder"))(str(tiny(kind)))
    candidates = {query: [*PASSAGES][row : row + 30] for row, query in enumerate([*QUERIES][1:])}  # one has none
    search = retriever(kind, tiny(kind), {})
    if kind == "cross":
        run = {}
        for query, ids in candidates.items():
            values = search.scores([(QUERIES[query], PASSAGES[passage]) for passage in ids])
            run[query] = dict(zip(ids, values.tolist(), strict=True))
    else:
        search.index(list(PASSAGES.items()), tmp_path / "index")
        queries = pl.DataFrame({"query_id": list(QUERIES), "text": list(QUERIES.values())})
        run = {query: dict(hits) for query, hits in search.search(queries, tmp_path / "index", 60)}
    relevant = {query: set(judged) for query, judged in QRELS.items()}
    made = of_library(model, QUERIES, PASSAGES, relevant, candidates, batch_size=16)
    assert type(made).__module__.startswith("sentence_transformers.") and made.batch_size == 16
    figures = made(model, str(tmp_path / "out"))
    [value] = [value for name, value in figures.items() if name.endswith("mrr@10") and "base" not in name]
    assert value == pytest.approx(by_trec_eval(run)) and value > 0
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_training_shows_each_cluster_of_the_shift(trainable_release: Release, tmp_path: Path) -> None:
    """In what a training of two steps logs of its evaluators."""
    from datasets import Dataset
    from sentence_transformers.base.evaluation import SequentialEvaluator
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    release = trainable_release
    of_release = dict(release.table("passages", "passages").iter_rows())
    model = st.SentenceTransformer(str(bag_of_word_pieces(of_release.values(), tmp_path / "model")))
    train = release.table("topic", "train").join(release.qrels("train"), on="query_id").head(32)
    columns = {"query": train["text"].to_list(), "passage": [of_release[passage] for passage in train["passage_id"]]}
    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "report_to": "none", "use_cpu": True}
    names = ["topic.c0", "topic.c1", "topic"]
    training = st.SentenceTransformerTrainer(
        model=model,
        args=st.SentenceTransformerTrainingArguments(str(tmp_path / "out"), **options),
        train_dataset=Dataset.from_dict(columns),
        loss=MultipleNegativesRankingLoss(model),
        evaluator=SequentialEvaluator([evaluator(model, release, name) for name in names]),
    )
    training.train()
    [entry] = [entry for entry in training.state.log_history if "eval_topic_cosine_mrr@10" in entry]
    for name in names[:2]:
        queries = release.queries(name)
        vectors = [
            model.encode(some, normalize_embeddings=True)
            for some in (queries["text"].to_list(), [*of_release.values()])
        ]
        scores = vectors[0] @ vectors[1].T
        run = {
            query: dict(zip(of_release, map(float, row), strict=True))
            for query, row in zip(queries["query_id"], scores, strict=True)
        }
        judged = release.qrels("topic_test").rows_by_key("query_id").items()
        qrels = {query: {passage: int(grade) for passage, grade in rows} for query, rows in judged}
        expected = by_trec_eval(run, qrels, queries["query_id"])
        assert expected > 0 and entry[f"eval_{name}_cosine_mrr@10"] == pytest.approx(expected, abs=2e-3)


def test_a_cross_encoder_reads_the_best_of_a_run(mini_release: Release) -> None:
    model: Any = st.CrossEncoder(str(tiny("cross")))
    of_release = dict(mini_release.table("passages", "passages").iter_rows())
    query = mini_release.test_sets["topic.c0"].queries[0]
    best = {passage: float(-place) for place, passage in enumerate([*of_release][: CANDIDATES + 20])}
    made = evaluator(model, mini_release, "topic.c0", {query: best})
    first, second, *_ = made.samples
    assert first["documents"] == [of_release[passage] for passage in [*of_release][:CANDIDATES]]
    assert second["documents"] == [""] and second["positive"] and not made.always_rerank_positives
    assert len(made.samples) == len(mini_release.test_sets["topic.c0"].queries)


def test_passages_of_grade_0_are_not_relevant(mini_release: Release) -> None:
    """Of a test set, and of a shift's all test sets together."""
    model, judged = st.SentenceTransformer(str(tiny("dense"))), mini_release.qrels("dl19")
    made = evaluator(model, mini_release, "dl19")
    relevant = {(query, passage) for query, passage, grade in judged.iter_rows() if grade}
    assert {(query, passage) for query, ids in made.relevant_docs.items() for passage in ids} == relevant
    assert 0 < len(relevant) < judged.height
    whole = evaluator(model, mini_release, "topic").queries_ids
    assert {*whole} == set[str]().union(*(each.query_ids for each in mini_release.test_sets_of("topic")))


def test_mistakes_are_one_sentence(mini_release: Release, published_release: Release) -> None:
    model, cross = st.SentenceTransformer(str(tiny("dense"))), st.CrossEncoder(str(tiny("cross")))
    with pytest.raises(UserError, match="has no test sets of tpoic"):
        evaluator(model, mini_release, "tpoic")
    with pytest.raises(UserError, match="a small release of it"):
        evaluator(model, published_release, "topic.c0")
    with pytest.raises(UserError, match="re-ranks candidates"):
        evaluator(cross, mini_release, "topic")
    with pytest.raises(UserError, match="no passage of this release"):
        evaluator(cross, mini_release, "topic", candidates={"1": {"nowhere": 1.0}})
    with pytest.raises(UserError, match="has no encode_query"):
        evaluator(object(), mini_release, "topic")
