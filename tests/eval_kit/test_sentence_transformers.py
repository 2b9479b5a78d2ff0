"""Evaluators for trainers: their figures are trec_eval's on the same rankings, for all four kinds of models."""

from collections.abc import Mapping
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
from eval_kit.release import Release, open_release
from eval_kit.sentence_transformers import PoolEvaluator, ShiftEvaluator
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


@pytest.mark.parametrize("values", [1, 3, 1000])
def test_figures_are_trec_evals_also_where_scores_are_equal(values: int) -> None:
    scores = np.random.default_rng(values).integers(values, size=(len(QUERIES), len(PASSAGES))).astype(np.float32)
    run = {query: dict(zip(PASSAGES, map(float, row), strict=True)) for query, row in zip(QUERIES, scores, strict=True)}
    metrics = pool()(Fixed(scores))
    expected = by_trec_eval(run)
    for name, value in expected.items():
        assert metrics[f"{name}_RR@10"] == pytest.approx(value)
        assert metrics[f"{name}_RR@10_low"] <= metrics[f"{name}_RR@10"] <= metrics[f"{name}_RR@10_high"]
    assert values == 1 or expected["all"] > 0


def test_passages_without_a_score_rank_nowhere() -> None:
    nothing = np.full((len(QUERIES), len(PASSAGES)), np.nan, np.float32)
    assert pool()(Fixed(nothing))["all_RR@10"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse", "multivector", "cross"])
def test_every_kind_of_model_ranks_as_its_search_does(kind: str, tmp_path: Path) -> None:
    import sentence_transformers

    from eval_kit.models import retriever

    names = {"dense": "SentenceTransformer", "sparse": "SparseEncoder", "multivector": "MultiVectorEncoder"}
    model = getattr(sentence_transformers, names.get(kind, "CrossEncoder"))(str(tiny(kind)))
    candidates = {query: [*PASSAGES][row : row + 30] for row, query in enumerate(QUERIES)}
    if kind == "cross":
        pairs = [(query, passage) for query, ids in candidates.items() for passage in ids]
        contents = [(QUERIES[query], PASSAGES[passage]) for query, passage in pairs]
        values = retriever("cross", tiny(kind), {}).scores(contents).tolist()
        run: dict[str, dict[str, float]] = {query: {} for query in QUERIES}
        for (query, passage), value in zip(pairs, values, strict=True):
            run[query][passage] = value
    else:
        search = retriever(kind, tiny(kind), {})
        search.index(list(PASSAGES.items()), tmp_path)
        frame = pl.DataFrame({"query_id": list(QUERIES), "text": list(QUERIES.values())})
        run = {query: dict(hits) for query, hits in search.search(frame, tmp_path, 60)}
    expected = by_trec_eval(run)
    metrics = pool(candidates=candidates)(model)
    assert expected["all"] > 0
    assert {name: metrics[f"{name}_RR@10"] for name in GROUPS} == pytest.approx(expected)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Release:
    from builder import mini
    from builder import release as releases

    folder = tmp_path_factory.mktemp("small") / "mini"
    releases.write(mini.draft(queries=500), folder)
    return open_release(folder)


def judged_on(release: Release, shift: str) -> dict[str, dict[str, int]]:
    rows = release.qrels(f"{shift}_test").rows_by_key("query_id").items()
    return {query: {passage: int(grade) for passage, grade in judged} for query, judged in rows}


@pytest.mark.slow
def test_a_training_shows_each_cluster_of_the_shift(small: Release, tmp_path: Path) -> None:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    passages = dict(small.table("passages", "passages").iter_rows())
    model = SentenceTransformer(str(bag_of_word_pieces(passages.values(), tmp_path / "model")))
    train = small.table("topic", "train").join(small.qrels("train"), on="query_id").head(32)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            str(tmp_path / "out"), max_steps=2, eval_strategy="steps", eval_steps=2, report_to="none", use_cpu=True
        ),
        train_dataset=Dataset.from_dict(
            {"query": train["text"].to_list(), "passage": [passages[passage] for passage in train["passage_id"]]}
        ),
        loss=MultipleNegativesRankingLoss(model),
        evaluator=ShiftEvaluator(small, "topic"),
    )
    trainer.train()
    [logged] = [entry for entry in trainer.state.log_history if "eval_topic_RR@10" in entry]
    test_sets = {f"topic.{part}": small.test_sets[f"topic.{part}"].queries for part in ("c0", "c1", "c4")}
    texts = pl.concat(small.queries(name) for name in test_sets)
    vectors = model.encode(texts["text"].to_list()), model.encode(list(passages.values()))
    scores = vectors[0] @ vectors[1].T / np.outer(*(np.linalg.norm(side, axis=1) for side in vectors))
    run = {
        query: dict(zip(passages, map(float, row), strict=True))
        for query, row in zip(texts["query_id"], scores, strict=True)
    }
    expected = by_trec_eval(run, judged_on(small, "topic"), test_sets)
    assert min(expected.values()) > 0
    assert {name: logged[f"eval_{name}_RR@10"] for name in test_sets} == pytest.approx(expected, abs=1e-3)
    model.save_pretrained(str(tmp_path / "saved"))
    card = ModelCard.load(tmp_path / "saved" / "README.md")
    assert small.digest in card.text
    [shown] = {(result.dataset_name, result.task_type) for result in card.data.eval_results}
    assert shown == ("ms marco shift mini topic", "information-retrieval")
    assert ShiftEvaluator(small, "wh").name == "ms-marco-shift-mini-wh"


@pytest.mark.slow
def test_a_cross_encoders_training_shows_each_cluster_of_the_shift(small: Release, tmp_path: Path) -> None:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    passages = dict(small.table("passages", "passages").iter_rows())
    bag_of_word_pieces(passages.values(), tmp_path / "model")
    model = CrossEncoder(str(tmp_path / "model" / "bare"), num_labels=1)
    qrels, random = judged_on(small, "topic"), np.random.default_rng(0)
    candidates = {
        query: dict.fromkeys([*judged, *random.choice([*passages], 20)], 1.0) for query, judged in qrels.items()
    }
    train = small.table("topic", "train").join(small.qrels("train"), on="query_id").head(32)
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(
            str(tmp_path / "out"), max_steps=2, eval_strategy="steps", eval_steps=2, report_to="none", use_cpu=True
        ),
        train_dataset=Dataset.from_dict(
            {
                "query": train["text"].to_list(),
                "passage": [passages[passage] for passage in train["passage_id"]],
                "label": [float(row % 2) for row in range(train.height)],
            }
        ),
        loss=BinaryCrossEntropyLoss(model),
        evaluator=ShiftEvaluator(small, "topic", candidates=candidates),
    )
    trainer.train()
    [logged] = [entry for entry in trainer.state.log_history if "eval_topic_RR@10" in entry]
    queries = dict(pl.concat(small.queries(test_set.name) for test_set in small.test_sets_of("topic")).iter_rows())
    run = {}
    for query, ids in candidates.items():
        scores = model.predict([(queries[query], passages[passage]) for passage in ids])
        run[query] = dict(zip(ids, map(float, scores), strict=True))
    test_sets = {test_set.name: test_set.queries for test_set in small.test_sets_of("topic")}
    expected = by_trec_eval(run, qrels, test_sets)
    assert min(expected.values()) > 0
    assert {name: logged[f"eval_{name}_RR@10"] for name in test_sets} == pytest.approx(expected)


def test_mistakes_are_one_sentence(mini_release: Release, published_release: Release) -> None:
    with pytest.raises(UserError, match=r"has no test sets of tpoic; it has those of topic, wh, length, "):
        ShiftEvaluator(mini_release, "tpoic")
    with pytest.raises(UserError, match="embeds no passages; make a small release of it with: python -m builder lite"):
        ShiftEvaluator(published_release, "topic")
    with pytest.raises(UserError, match="holds none of the release's passages"):
        ShiftEvaluator(mini_release, "topic", candidates={"1": {"nowhere": 1.0}})
