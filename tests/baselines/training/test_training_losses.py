"""The losses of the papers' repositories, against their formulas written out number by number."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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


@pytest.mark.parametrize("own_alone", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_l2_is_colbert_v02s_where_a_masked_token_is_a_vector_of_zeros(seed: int, own_alone: bool) -> None:
    """``doc`` and ``score`` of colbert/modeling/colbert.py at f415bfe: zeros take part in the maximum, at -1."""
    draw = np.random.default_rng(seed)
    queries, passages = draw.normal(size=(3, 4, 8)), draw.normal(size=(3, 2, 6, 8))
    of_queries, of_passages = draw.random((3, 4)) < 0.8, draw.random((3, 2, 6)) < 0.7
    of_passages[0, 0] = True  # no token is masked, so nothing is nearer than the nearest word
    of_passages[2, 1] = False
    queries /= np.linalg.norm(queries, axis=-1, keepdims=True)
    passages /= np.linalg.norm(passages, axis=-1, keepdims=True)
    scores = own_passages_only(negative_squared_l2) if own_alone else negative_squared_l2
    masks = {"queries_mask": torch.from_numpy(of_queries), "documents_mask": torch.from_numpy(of_passages)}
    leaves = [torch.from_numpy(one).requires_grad_() for one in (queries, passages)]
    found = scores(*leaves, **masks)
    zeroed = passages * of_passages[..., None]
    distances = ((queries[:, None, None, :, None] - zeroed[None, :, :, None]) ** 2).sum(-1)
    expected = (-distances.min(-1) * of_queries[:, None, None]).sum(-1).reshape(3, 6)
    if own_alone:
        expected[~np.eye(3, dtype=bool).repeat(2, axis=1)] = -np.inf
    assert found.detach().numpy() == pytest.approx(expected, abs=1e-6)
    found[torch.isfinite(found)].sum().backward()
    nearest = np.take_along_axis(zeroed[None, :, :, None], distances.argmin(-1)[..., None, None], 4)[..., 0, :]
    gradients = -2 * (queries[:, None, None] - nearest) * of_queries[:, None, None, :, None]
    counted = np.isfinite(expected).reshape(3, 3, 2, 1, 1)
    assert leaves[0].grad.numpy() == pytest.approx((gradients * counted).sum((1, 2)), abs=1e-6)


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
