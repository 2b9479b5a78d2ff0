"""Evaluators for trainers: their figures are trec_eval's on the same rankings, for all four kinds of models."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sentence_transformers")
import pytrec_eval
import torch
from huggingface_hub import ModelCard

from eval_kit.errors import UserError
from eval_kit.integrations.sentence_transformers import PoolEvaluator, ShiftEvaluator
from eval_kit.release import Release
from tests.tiny_checkpoints import bag_of_word_pieces, passages, texts, tiny

QUERIES = {f"q{row}": text for row, text in enumerate(texts(12, seed=7, longest=6))}
PASSAGES = dict(passages(60))
QRELS = {query: {f"p{(row * 5 + step) % 60}": 1 for step in range(3)} for row, query in enumerate(QUERIES)}
GROUPS = {"odd": [*QUERIES][1::2], "all": [*QUERIES]}


def frame(qrels: Mapping[str, Mapping[str, int]]) -> pl.DataFrame:
    rows = [(query, passage, grade) for query, judged in qrels.items() for passage, grade in judged.items()]
    return pl.DataFrame(rows, ["query_id", "passage_id", "relevance"], orient="row")


def pool(**options: Any) -> PoolEvaluator:
    return PoolEvaluator(QUERIES, PASSAGES, frame(QRELS), GROUPS, **options)


def by_trec_eval(run: Mapping[str, Mapping[str, float]], qrels: Any = QRELS, groups: Any = GROUPS) -> dict[str, float]:
    """The mean RR@10 of each group."""
    values = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run)
    rr = {query: value["recip_rank"] if value["recip_rank"] >= 0.1 else 0 for query, value in values.items()}
    return {name: float(np.mean([rr.get(query, 0) for query in ids])) for name, ids in groups.items()}


class Fixed:
    """A model with given scores."""

    model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def encode_query(self, texts: list[str], **_: object) -> list[int]:
        return [[*QUERIES.values()].index(text) for text in texts]

    def encode_document(self, texts: list[str], **_: object) -> list[int]:
        return [[*PASSAGES.values()].index(text) for text in texts]

    def similarity(self, queries: list[int], passages: list[int]) -> torch.Tensor:
        return torch.tensor(self.scores[np.ix_(queries, passages)])


def test_figures_are_trec_evals_also_where_scores_are_equal() -> None:
    for values in (1, 3, 1000):
        random = np.random.default_rng(values)
        scores = random.integers(values, size=(len(QUERIES), len(PASSAGES))).astype(np.float32)
        run = as_run(QUERIES, PASSAGES, scores)
        metrics = pool()(Fixed(scores))
        expected = by_trec_eval(run)
        for name, value in expected.items():
            assert metrics[f"{name}_RR@10"] == pytest.approx(value)
            assert metrics[f"{name}_RR@10_low"] <= metrics[f"{name}_RR@10"] <= metrics[f"{name}_RR@10_high"]
        assert values == 1 or expected["all"] > 0
    nothing = np.full((len(QUERIES), len(PASSAGES)), np.nan, np.float32)
    assert pool()(Fixed(nothing))["all_RR@10"] == 0, "passages without a score rank nowhere"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse", "multivector", "cross"])
def test_every_kind_of_model_ranks_as_its_search_does(kind: str, tmp_path: Path) -> None:
    import sentence_transformers

    from eval_kit.models.opening import retriever

    names = {"dense": "SentenceTransformer", "sparse": "SparseEncoder", "multivector": "MultiVectorEncoder"}
    model = getattr(sentence_transformers, names.get(kind, "CrossEncoder"))(str(tiny(kind)))
    candidates = {query: [*PASSAGES][row : row + 30] for row, query in enumerate(QUERIES)}
    search = retriever(kind, tiny(kind), {})
    if kind == "cross":
        run = {}
        for query, ids in candidates.items():
            values = search.scores([(QUERIES[query], PASSAGES[passage]) for passage in ids])
            run[query] = dict(zip(ids, values.tolist(), strict=True))
    else:
        search.index(list(PASSAGES.items()), tmp_path)
        queries = pl.DataFrame({"query_id": list(QUERIES), "text": list(QUERIES.values())})
        run = {query: dict(hits) for query, hits in search.search(queries, tmp_path, 60)}
    expected = by_trec_eval(run)
    metrics = pool(candidates=candidates)(model)
    assert expected["all"] > 0
    assert {name: metrics[f"{name}_RR@10"] for name in GROUPS} == pytest.approx(expected)


def judged_on(release: Release, shift: str) -> dict[str, dict[str, int]]:
    rows = release.qrels(f"{shift}_test").rows_by_key("query_id").items()
    return {query: {passage: int(grade) for passage, grade in judged} for query, judged in rows}


def as_run(queries: Iterable[str], passages: Iterable[str], scores: np.ndarray) -> dict[str, dict[str, float]]:
    rows = zip(queries, scores, strict=True)
    return {query: dict(zip(passages, map(float, row), strict=True)) for query, row in rows}


@pytest.mark.slow
def test_a_training_shows_each_cluster_of_the_shift(trainable_release: Release, tmp_path: Path) -> None:
    """In what a training of two steps logs of its evaluator."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer as Model
    from sentence_transformers import SentenceTransformerTrainer as Trainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss as Loss

    release = trainable_release
    passages = dict(release.table("passages", "passages").iter_rows())
    model = Model(str(bag_of_word_pieces(passages.values(), tmp_path / "model")))
    train = release.table("topic", "train").join(release.qrels("train"), on="query_id").head(32)
    columns = {"query": train["text"].to_list(), "passage": [passages[passage] for passage in train["passage_id"]]}
    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "report_to": "none", "use_cpu": True}
    training = Trainer(
        model=model,
        args=Arguments(str(tmp_path / "out"), **options),
        train_dataset=Dataset.from_dict(columns),
        loss=Loss(model),
        evaluator=ShiftEvaluator(release, "topic"),
    )
    training.train()
    [entry] = [entry for entry in training.state.log_history if "eval_topic_RR@10" in entry]
    test_sets = {f"topic.{part}": release.test_sets[f"topic.{part}"].queries for part in ("c0", "c1", "c4")}
    texts = pl.concat(release.queries(name) for name in test_sets)
    vectors = model.encode(texts["text"].to_list()), model.encode(list(passages.values()))
    scores = vectors[0] @ vectors[1].T / np.outer(*(np.linalg.norm(side, axis=1) for side in vectors))
    run = as_run(texts["query_id"], passages, scores)
    expected = by_trec_eval(run, judged_on(release, "topic"), test_sets)
    assert min(expected.values()) > 0
    assert {name: entry[f"eval_{name}_RR@10"] for name in test_sets} == pytest.approx(expected, abs=1e-3)
    model.save_pretrained(str(tmp_path / "saved"))
    card = ModelCard.load(tmp_path / "saved" / "README.md")
    assert release.digest in card.text
    [shown] = {(result.dataset_name, result.task_type) for result in card.data.eval_results}
    assert shown == ("ms marco shift mini topic", "information-retrieval")
    assert ShiftEvaluator(release, "wh").name == "ms-marco-shift-mini-wh"


@pytest.mark.slow
def test_a_cross_encoder_is_shown_on_its_candidates(trainable_release: Release, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    release = trainable_release
    passages = dict(release.table("passages", "passages").iter_rows())
    bag_of_word_pieces(passages.values(), tmp_path / "model")
    model = CrossEncoder(str(tmp_path / "model" / "bare"), num_labels=1)
    qrels, random = judged_on(release, "topic"), np.random.default_rng(0)
    candidates = {}
    for query, judged in qrels.items():
        candidates[query] = dict.fromkeys([*judged, *random.choice([*passages], 20)], 1.0)
    metrics = ShiftEvaluator(release, "topic", candidates=candidates)(model)
    queries = dict(pl.concat(release.queries(test_set.name) for test_set in release.test_sets_of("topic")).iter_rows())
    run = {}
    for query, ids in candidates.items():
        scores = model.predict([(queries[query], passages[passage]) for passage in ids])
        run[query] = dict(zip(ids, map(float, scores), strict=True))
    test_sets = {test_set.name: test_set.queries for test_set in release.test_sets_of("topic")}
    expected = by_trec_eval(run, qrels, test_sets)
    assert min(expected.values()) > 0
    assert {name: metrics[f"{name}_RR@10"] for name in test_sets} == pytest.approx(expected)


def test_mistakes_are_one_sentence(mini_release: Release, published_release: Release) -> None:
    with pytest.raises(UserError, match="has no test sets of tpoic"):
        ShiftEvaluator(mini_release, "tpoic")
    with pytest.raises(UserError, match="a small release of it"):
        ShiftEvaluator(published_release, "topic")
    with pytest.raises(UserError, match="no passage of this release"):
        ShiftEvaluator(mini_release, "topic", candidates={"1": {"nowhere": 1.0}})
