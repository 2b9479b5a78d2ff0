"""Many passages on a CPU are encoded by threads, which change no bit and end soon."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from eval_kit.errors import UserError
from eval_kit.models import devices
from eval_kit.models.dense import Dense
from eval_kit.models.encoder import Encoder
from eval_kit.models.multivector import MultiVector
from eval_kit.models.sparse import Sparse
from eval_kit.search import shards
from tests.tiny_checkpoints import tiny

PASSAGES = [(f"p{number}", "alpha beta " * (number % 7 + 1)) for number in range(64)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "visible", list)
    monkeypatch.setattr(devices, "MANY", 50)
    monkeypatch.setattr(devices, "cores", lambda: 3)
    monkeypatch.setattr(shards, "SHARD", 4)


@pytest.mark.parametrize(("kind", "architecture"), [(Dense, "dense"), (Sparse, "sparse"), (MultiVector, "multivector")])
def test_threads_change_no_bit(
    kind: type[Encoder], architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    seen = set()
    encode = kind.encode_passages

    def watched(self: Encoder, texts: list[shards.Content]) -> shards.Arrays:
        seen.add(threading.current_thread())
        assert torch.get_num_threads() == max(1, before // 3)
        return encode(self, texts)

    monkeypatch.setattr(kind, "encode_passages", watched)
    spread = devices.encode(kind(str(tiny(architecture))), PASSAGES, tmp_path / "threads")
    assert len(seen) == 3
    assert torch.get_num_threads() == before
    monkeypatch.setattr(devices, "MANY", 1_000)
    monkeypatch.setattr(kind, "encode_passages", encode)
    torch.set_num_threads(max(1, before // 3))
    alone = devices.encode(kind(str(tiny(architecture))), PASSAGES, tmp_path / "alone")
    torch.set_num_threads(before)
    [names] = {tuple(file.name for file in sorted(each.folder.glob("*.npy"))) for each in (spread, alone)}
    for name in names:
        assert np.array_equal(np.load(spread.folder / name), np.load(alone.folder / name))


def test_an_error_ends_the_other_threads_before_their_next_batch(tmp_path: Path) -> None:
    retriever = Dense(str(tiny("dense")), encode_batch=1)
    with torch.no_grad():
        next(iter(retriever._model.parameters()))[:] = float("nan")
    before = set(threading.enumerate())
    with pytest.raises(UserError, match="gives NaN"):
        devices.encode(retriever, PASSAGES, tmp_path / "index")
    assert set(threading.enumerate()) <= before
    assert not (tmp_path / "index" / shards.MANIFEST).exists()
    assert retriever._model.preprocess.__self__ is retriever._model
