"""Losses that sentence-transformers lacks: those of the papers' own repositories, and any loss in less memory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

type Scores = Callable[..., Tensor]
"""MaxSim of queries (n, tokens, d) and passages (m, columns, tokens, d), with their masks, as (n, m · columns)."""


def in_batch_pairwise(share: int) -> Any:
    """SPLADE's loss: a softmax over the positives of a share of the batch and a query's own negatives.

    As ``InBatchPairwiseNLL`` in ``splade/losses/pairwise.py`` of github.com/naver/splade, where the share is one GPU's
    part of the batch: unlike in sentence-transformers' loss, another query's negatives never count. Returns a loss with
    ``compute_loss_from_embeddings`` for sentence-transformers' ``SpladeLoss``.
    """
    import torch
    from torch.nn.functional import cross_entropy

    class InBatchPairwise(torch.nn.Module):
        def compute_loss_from_embeddings(self, embeddings: "list[Tensor]", labels: "Tensor | None" = None) -> "Tensor":
            """Mean over the queries; ``embeddings`` are (n, d): queries, positives and each column of negatives."""
            losses = []
            for queries, positives, *negatives in zip(
                *(torch.split(column, share) for column in embeddings), strict=True
            ):
                scores_of_column = [(queries * column).sum(dim=1, keepdim=True) for column in negatives]
                scores = torch.cat([queries @ positives.T, *scores_of_column], dim=1)
                losses.append(cross_entropy(scores, torch.arange(len(queries), device=scores.device), reduction="none"))
            return torch.cat(losses).mean()

    return InBatchPairwise()


def flops_apart(model: Any, negatives: int) -> Any:
    """SPLADE's regulariser of passages: half of the FLOPS of positives and half of those of negatives.

    As in github.com/naver/splade, whose λ is thus the λ here; sentence-transformers' FLOPS of all passages together are
    some 11 % less for a batch of 128.
    """
    from sentence_transformers.sparse_encoder.losses import FlopsLoss

    class FlopsApart(FlopsLoss):
        def compute_loss_from_embeddings(self, embeddings: "Tensor") -> "Tensor":
            """Of (n · (1 + negatives), d): all positives, and then each column of negatives."""
            count = len(embeddings) // (1 + negatives)
            parts = [embeddings[:count], embeddings[count:]] if negatives else [embeddings]
            return sum(map(super().compute_loss_from_embeddings, parts)) / len(parts)  # type: ignore[return-value]

    return FlopsApart(model)


def negative_squared_l2(
    queries: "Tensor", passages: "Tensor", queries_mask: "Tensor", documents_mask: "Tensor"
) -> "Tensor":
    """ColBERT's ``--similarity l2``: for each token of a query −‖q − p‖² to the nearest of the passage, summed.

    As ``colbert/modeling/colbert.py`` (v0.2, 2020) of github.com/stanford-futuredata/ColBERT, whose README trains with
    it: a masked token of a passage (punctuation, padding) is a vector of zeros, so the nearest is never below −1.
    """
    import torch
    from sentence_transformers.multi_vector_encoder.scoring import colbert_scores

    zeroed = passages * documents_mask[..., None]
    # −‖q − p‖² = (q, 1) · (2p, −‖p‖²) − ‖q‖²
    longer = torch.cat([2 * zeroed, -zeroed.square().sum(-1, keepdim=True)], -1)
    with_one, every = torch.cat([queries, torch.ones_like(queries[..., :1])], -1), torch.ones_like(documents_mask)
    scores = colbert_scores(with_one, longer, queries_mask, every)
    return scores - (queries.square().sum(-1) * queries_mask).sum(1, keepdim=True)


def own_passages_only(scores: Scores) -> Scores:
    """Scores for a softmax over a query's own positive and negatives, without the other passages of the batch.

    As ColBERT's ``colbert/training/training.py`` (v0.2, 2020), which scores each query with its own pair of passages.
    ``scores`` are of n queries and the n groups of their passages.
    """

    def masked_scores(
        queries: "Tensor", passages: "Tensor", queries_mask: "Tensor", documents_mask: "Tensor"
    ) -> "Tensor":
        import torch

        values = scores(queries, passages, queries_mask=queries_mask, documents_mask=documents_mask)
        diagonal = torch.eye(len(values), dtype=torch.bool, device=values.device)
        return values.masked_fill(~diagonal.repeat_interleave(values.shape[1] // len(values), dim=1), -torch.inf)

    return masked_scores


def with_cache(loss: Any, mini_batch_size: int) -> Any:
    """A loss of embeddings with the same gradients in less memory: only one mini-batch is embedded at a time.

    GradCache (Gao et al., 2021), which sentence-transformers has for some losses only.
    """
    import torch
    from sentence_transformers.base.losses.gradcache import CachedLossMixin

    class CachedLoss(CachedLossMixin, torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loss, self.model, self.mini_batch_size = loss, loss.model, mini_batch_size

        def calculate_loss(self, reps: Any, labels: Any = None, *, with_backward: bool = False) -> Any:
            value = self.loss.compute_loss_from_embeddings(list(map(torch.cat, reps)), labels)
            if with_backward:
                value.backward()
            return value.detach() if with_backward else value

        def forward(self, sentence_features: Any, labels: Any = None) -> Any:
            return self.forward_cached(sentence_features, labels)

    return CachedLoss()
