"""The losses of the papers' repositories, against their formulas written out number by number."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sentence_transformers.multi_vector_encoder.scoring import colbert_scores
from torch.nn.functional import cross_entropy, normalize

from baselines.training.losses import flops_apart, in_batch_pairwise, negative_squared_l2, own_passages_only


def softmax_loss(own: float, rest: list[float]) -> float:
    return math.log(math.exp(own) + sum(map(math.exp, rest))) - own


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_splades_loss_is_over_the_shares_positives_and_the_querys_own_negatives(
    queries: int, share: int, negatives: int, seed: int
) -> None:
    columns = np.random.default_rng(seed).normal(size=(2 + negatives, queries, 5))
    query, positive, *negative = columns
    expected = []
    for row in range(queries):
        first = row // share * share
        rest = [other for other in range(first, min(first + share, queries)) if other != row]
        scores = [float(query[row] @ positive[other]) for other in rest]
        scores += [float(query[row] @ column[row]) for column in negative]
        expected.append(softmax_loss(float(query[row] @ positive[row]), scores))
    loss = in_batch_pairwise(share).compute_loss_from_embeddings(list(torch.from_numpy(columns)))
    assert loss.item() == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("negatives", [0, 1, 3])
def test_splades_flops_are_those_of_positives_and_of_negatives_halved(negatives: int) -> None:
    weights = np.random.default_rng(negatives).random((1 + negatives, 4, 7))
    parts = [weights[0], *([weights[1:].reshape(-1, 7)] if negatives else [])]
    expected = np.mean([np.sum(part.mean(axis=0) ** 2) for part in parts])
    found = flops_apart(None, negatives).compute_loss_from_embeddings(torch.from_numpy(weights.reshape(-1, 7)))
    assert found.item() == pytest.approx(expected)


def units(*shape: int) -> torch.Tensor:
    return normalize(torch.from_numpy(np.random.default_rng(len(shape)).normal(size=shape)), dim=-1)


def test_l2_is_the_distance_to_the_nearest_token() -> None:
    queries, passages = units(3, 4, 8), units(5, 6, 8).flip(0)
    queries_mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)
    passages_mask = torch.arange(6)[None] < torch.tensor([6, 5, 4, 3, 2])[:, None]
    masks = {"queries_mask": queries_mask, "documents_mask": passages_mask[:, None]}
    scores = negative_squared_l2(queries, passages[:, None], **masks)

    def score(query: NDArray[np.float64], passage: NDArray[np.float64]) -> float:
        return sum(-min(float(((token - other) ** 2).sum()) for other in passage) for token in query)

    for row in range(3):
        for column in range(5):
            query = queries[row][queries_mask[row]].numpy()
            passage = passages[column][passages_mask[column]].numpy()
            assert scores[row, column].item() == pytest.approx(score(query, passage))


def test_without_in_batch_negatives_colberts_softmax_is_over_a_querys_own_passages() -> None:
    queries, passages = units(3, 4, 8), units(3, 2, 5, 8).flip(0)
    masks = {
        "queries_mask": torch.ones(3, 4, dtype=torch.bool),
        "documents_mask": torch.ones(3, 2, 5, dtype=torch.bool),
    }
    scores = own_passages_only(colbert_scores)(queries, passages, **masks)
    loss = cross_entropy(scores, torch.arange(3) * 2)

    def maxsim(row: int, column: int) -> float:
        return float((queries[row].numpy() @ passages[row, column].numpy().T).max(axis=1).sum())

    expected = [softmax_loss(maxsim(row, 0), [maxsim(row, 1)]) for row in range(3)]
    assert loss.item() == pytest.approx(np.mean(expected))
