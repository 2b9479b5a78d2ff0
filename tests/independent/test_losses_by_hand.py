"""The losses of the five systems, STAR and distillation, as they are trained, in plain numpy on random tensors.

SPLADE's, ColBERT's and FLOPS are in tests/baselines/training/test_training_losses.py, ADORE's in test_adore.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MultipleNegativesRankingLoss
from sentence_transformers.sparse_encoder.losses import SparseDistillKLDivLoss
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.util import dot_score

from baselines.systems import monobert
from baselines.training.distillation import TEACHER_TEMPERATURE, in_batch
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell

type Numbers = NDArray[np.float64]


def log_softmax(scores: Numbers) -> Numbers:
    shifted = scores - scores.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def drawn(seed: int, *shape: int) -> Numbers:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("columns", [1, 2, 9])
def test_star_is_one_softmax_over_all_passages_of_the_batch(seed: int, columns: int) -> None:
    """The bi-encoder's loss, DPR's: positives, hard and random passages of every query together; with STAR some of
    the negatives are static hard ones."""
    queries, passages = drawn(seed, 5, 8), drawn(seed + 9, columns, 5, 8)
    scores = queries @ np.concatenate(passages).T
    expected = -log_softmax(scores)[range(5), range(5)].mean()
    loss = MultipleNegativesRankingLoss(None, scale=1.0, similarity_fct=dot_score)  # type: ignore[arg-type]
    found = loss.compute_loss_from_embeddings(list(map(torch.from_numpy, [queries, *passages])), None)
    assert found.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [DistillKLDivLoss, SparseDistillKLDivLoss])
def test_tct_colberts_kl(seed: int, kind: Any) -> None:
    """``train/model_fn.py`` of castorini/tct_colbert: KL of the softmax of teacher / 0.25 and the student's, over all
    passages of the batch."""
    queries, passages, teacher = drawn(seed, 4, 6), drawn(seed + 9, 2, 4, 6), drawn(seed + 99, 4, 8)
    of_teacher, of_student = log_softmax(teacher / 0.25), log_softmax(queries @ np.concatenate(passages).T)
    expected = (np.exp(of_teacher) * (of_teacher - of_student)).sum(-1).mean()
    loss = in_batch(kind)(None, temperature=1.0, teacher_temperature=TEACHER_TEMPERATURE)
    embeddings = list(map(torch.from_numpy, [queries, *passages]))
    assert loss.compute_loss_from_embeddings(embeddings, torch.from_numpy(teacher)).item() == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_splades_weights_count_a_masked_token_as_zero(pooling: str) -> None:
    """``splade/models/transformer_rep.py`` of naver/splade: log(1 + relu(logits)) times the mask, pooled."""
    logits, mask = drawn(1, 3, 5, 7), np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    weights = np.log1p(np.maximum(logits, 0)) * mask[..., None]
    expected = weights.max(1) if pooling == "max" else weights.sum(1)
    features = {"token_embeddings": torch.from_numpy(logits), "attention_mask": torch.from_numpy(mask)}
    found = SpladePooling(pooling)(features)["sentence_embedding"]  # type: ignore[arg-type]
    assert found.numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("in_batch_negatives", [0, 4])
def test_monoberts_softmax_is_over_a_querys_own_pairs(
    trainable_release: Release, tmp_path: Path, in_batch_negatives: int
) -> None:
    """CIKM 2022: pairwise cross-entropy; ECIR 2023: one in-batch negative of each query besides. Of three queries
    all others' passages are drawn, in whatever order."""
    cell = tiny_cell("monobert", trainable_release, tmp_path, negatives=1, in_batch_negatives=in_batch_negatives)
    queries = ["alpha beta", "what is gamma", "delta"]
    columns = [["alpha one", "gamma two", "delta three"], ["four beta", "five", "six alpha"]]
    parts = monobert.build(cell, queries, None)
    parts.model.eval()
    with torch.no_grad():
        found = parts.loss([queries, *columns], None).item()
    scores = np.array([
        parts.model.predict([(query, passage) for passage in own], activation_fn=torch.nn.Identity())
        for query, *own in zip(queries, *columns, strict=True)
    ])  # fmt: skip
    if in_batch_negatives:
        others = [[one for column in columns for one in column if one not in own] for own in zip(*columns, strict=True)]
        drawn_too = [
            parts.model.predict([(query, passage) for passage in rest], activation_fn=torch.nn.Identity())
            for query, rest in zip(queries, others, strict=True)
        ]
        scores = np.concatenate([scores, drawn_too], axis=1)
    assert found == pytest.approx(-log_softmax(scores.astype(float))[:, 0].mean(), abs=1e-6)
