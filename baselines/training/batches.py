"""The batches of a training: no query or passage twice in one, and passages of similar length, so that few are padded.

Examples are drawn at random, each once an epoch. ``WINDOW`` batches of the draw are then put together anew by the
longest passage of each example, and come in a random order, as in the library's ``group_by_length``.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import batched, chain
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from datasets import Dataset

WINDOW = 8
"""Batches. More would save little more, and be less of a draw."""

type Texts = Callable[[list[str]], list[str]]
"""Passages by their ids."""


def sampler(texts: Texts | None) -> type:
    """The class of the library's that a trainer makes batches by; its draws depend on the seed and the epoch alone.

    Without ``texts``, those of the passages, batches are as they are drawn.
    """
    import torch
    from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

    class Distinct(NoDuplicatesBatchSampler):
        def __init__(self, dataset: "Dataset", **options: Any) -> None:
            super().__init__(dataset.with_format(None), **options)  # ids, before there are texts and labels

        def __iter__(self) -> Iterator[list[int]]:
            drawn = super().__iter__()
            if texts is None:
                yield from drawn
                return
            rest = list[int]()
            for window in batched(drawn, WINDOW):
                alike = by_length([*rest, *chain.from_iterable(window)], self.dataset, texts, self.batch_size)
                full = [batch for batch in alike if len(batch) == self.batch_size]
                for place in torch.randperm(len(full), generator=self.generator).tolist():
                    yield full[place]
                rest = [*chain.from_iterable(batch for batch in alike if len(batch) < self.batch_size)]
            yield from by_length(rest, self.dataset, texts, self.batch_size) if rest and not self.drop_last else ()

    return Distinct


def by_length(rows: list[int], examples: "Dataset | Any", texts: Texts, size: int) -> list[list[int]]:
    """Batches of these examples, the shortest first, no id twice in one: the last ones may be smaller."""
    columns: Mapping[str, list[str]] = examples[rows]
    lengths = [list(map(len, texts(ids))) for name, ids in columns.items() if name != "query"]
    ids_of = [set(ids) for ids in zip(*columns.values(), strict=True)]
    rest, batches = np.argsort(np.max(lengths, axis=0), kind="stable").tolist(), list[list[int]]()
    while rest:
        taken, ids, later = list[int](), set[str](), list[int]()
        for number in rest:
            if len(taken) < size and ids.isdisjoint(ids_of[number]):
                taken.append(rows[number])
                ids |= ids_of[number]
            else:
                later.append(number)
        batches.append(taken)
        rest = later
    return batches
