"""The best passages of each query over blocks of scores, exact also where scores are equal.

Everywhere the order is trec_eval's: score descending, then passage id descending as a string. Where more passages than
wanted share the last score, those with the greatest ids stay, in whatever order the blocks come.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

type Best = tuple["Tensor", "Tensor"]
"""Scores (q, k), float32, and the rows of the passages that have them (q, k), int64."""
type Ranking = Iterator[list[tuple[str, float]]]
"""For each query ``(passage id, score)`` pairs, best first."""


@dataclass
class TopK:
    """The best ``depth`` of all that was added, for queries in groups.

    Attributes:
        depth: passages per query.
        rank: for each row the position of its passage id among all ids in ascending order; a tensor on the device that
            the scores are on.
        above: only passages with greater scores count.
    """

    depth: int
    rank: "Tensor"
    above: float = -np.inf
    _groups: dict[int, Best] = field(default_factory=dict)

    def add(self, group: int, scores: "Tensor", rows: "Tensor") -> None:
        """Add a block of scores.

        Groups come out in ascending order. The scores, (q, b) float32, may leave passages of the block out, but none
        that is as good as one they hold; ``rows`` are (q, b) int64, or (b,) for the same passages in each line.
        """
        import torch

        rows = rows.expand(scores.shape)
        if group in self._groups:
            before, before_rows = self._groups[group]
            scores, rows = torch.cat([before, scores], 1), torch.cat([before_rows, rows], 1)
        self._groups[group] = best(scores, rows, self.rank, self.depth, self.above)

    def hits(self, ids: NDArray[np.bytes_]) -> Ranking:
        """For each query its passages, best first."""
        for group in sorted(self._groups):
            scores, rows = in_order(*self._groups[group], self.rank)
            for values, columns in zip(scores.cpu().numpy(), rows.cpu().numpy(), strict=True):
                keep = int((values > self.above).sum())
                names = [passage_id.decode() for passage_id in ids[columns[:keep]].tolist()]
                yield list(zip(names, values[:keep].tolist(), strict=True))


def best(scores: "Tensor", rows: "Tensor", rank: "Tensor", depth: int, above: float = -np.inf) -> Best:
    """The ``depth`` best columns of each line of ``scores`` (q, m), in any order; all, where there are fewer.

    It is left open which passages with scores up to ``above`` are among them.
    """
    columns = scores.shape[1]
    if columns <= depth:
        return scores, rows
    values, best_rows = scores.topk(depth, dim=1)
    width = int(((scores >= values[:, -1:]) & (scores > above)).sum(1).max())
    if width <= depth:
        return values, rows.gather(1, best_rows)
    values, best_rows = scores.topk(width, dim=1)  # holds every passage that shares the last score of its line
    values, rows = in_order(values, rows.gather(1, best_rows), rank)
    return values[:, :depth].contiguous(), rows[:, :depth].contiguous()


def in_order(scores: "Tensor", rows: "Tensor", rank: "Tensor") -> Best:
    """Sort each line by score descending, then passage id descending."""
    by_id = rank[rows].argsort(dim=1, descending=True)
    scores, rows = scores.gather(1, by_id), rows.gather(1, by_id)
    by_score = scores.argsort(dim=1, descending=True, stable=True)
    return scores.gather(1, by_score), rows.gather(1, by_score)


def rank_of(ids: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """The position of each id among all in ascending order (as bytes, which for UTF-8 is the order of the strings)."""
    order = np.argsort(ids, kind="stable")
    twice = ids[order[1:]] == ids[order[:-1]]
    if twice.any():
        raise UserError(f"The passage id {ids[order[1:]][twice][0].decode()} appears more than once")
    rank = np.empty(len(ids), np.int64)
    rank[order] = np.arange(len(ids))
    return rank


def device_of(name: str | None) -> Any:
    """The torch device to search on: the one named, else the GPU where there is one, else the CPU."""
    import torch

    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
