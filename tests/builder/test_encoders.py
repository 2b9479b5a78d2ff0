"""Encoders, and the vectors that are kept of them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from builder import encoders as module
from builder.encoders import Compute, Embeddings, Lsa, Model, by_name, encode
from eval_kit.errors import UserError
from tests.tiny_checkpoints import texts, tiny

TEXTS = texts(15, seed=1)


@dataclass
class Counting:
    """Vectors that tell which text they are of; fails after so many texts."""

    name: str = "counting"
    revision: str = "1"
    budget: int = 10**9
    seen: list[str] = field(default_factory=list)
    loaded: int = 0

    def load(self, texts: Sequence[str]) -> Compute:
        self.loaded += 1
        return self.compute

    def compute(self, part: Sequence[str]) -> Embeddings:
        if len(self.seen) + len(part) > self.budget:
            raise KeyboardInterrupt
        self.seen += part
        return truth(part)


def truth(texts: Sequence[str]) -> Embeddings:
    return np.array([[len(text), sum(map(ord, text)), ord(text[0])] for text in texts], np.float32)


def test_vectors_are_in_the_order_of_the_texts_and_kept_as_a_memory_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARD", 4)
    assert np.array_equal(encode(TEXTS, Counting()), truth(TEXTS))
    first, again = Counting(), Counting()
    assert np.array_equal(encode(TEXTS, first, tmp_path), truth(TEXTS))
    vectors = encode(pl.Series(TEXTS), again, tmp_path)
    assert isinstance(vectors, np.memmap) and np.array_equal(vectors, truth(TEXTS))
    assert (first.loaded, again.loaded) == (1, 0)


def test_cache_is_keyed_by_name_revision_and_the_texts_not_their_concatenation(tmp_path: Path) -> None:
    encode(["ab", "c"], Counting(), tmp_path)
    assert np.array_equal(encode(["a", "bc"], Counting(), tmp_path), truth(["a", "bc"]))
    for other in (Counting(name="x"), Counting(revision="2")):
        encode(["ab", "c"], other, tmp_path)
        assert other.loaded == 1


def test_an_interrupted_encoding_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD", 4)
    stopped, resumed = Counting(budget=9), Counting()
    with pytest.raises(KeyboardInterrupt):
        encode(TEXTS, stopped, tmp_path)
    assert len(stopped.seen) == 8
    assert np.array_equal(encode(TEXTS, resumed, tmp_path), truth(TEXTS))
    assert sorted(stopped.seen + resumed.seen) == sorted(TEXTS)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_texts(tmp_path: Path) -> None:
    """160 MB of vectors under a limit of 300 MB for everything, which they break if they are held in memory twice."""
    program = """
import resource, sys, numpy as np
from pathlib import Path
from builder.encoders import encode
class Flat:
    name, revision = "flat", "1"
    def load(self, texts):
        return lambda part: np.ones((len(part), 200), np.float32)
resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20))
vectors = encode([f"text {i}" for i in range(200_000)], Flat(), Path(sys.argv[1]) if len(sys.argv) > 1 else None)
assert vectors.shape == (200_000, 200) and vectors[:, 0].all()
"""
    cached = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert cached.returncode == 0, cached.stderr
    in_memory = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "MemoryError" in in_memory.stderr, "the limit would let everything pass"


def test_texts_that_are_refused(tmp_path: Path) -> None:
    for refused, sentence in (
        ([], "There are no texts to encode"),
        (["a", "", "b", " \t"], r"Text 2 is empty \(2 in all\)"),
        (pl.Series(["a", None]), r"Text 2 is empty \(1 in all\)"),
    ):
        with pytest.raises(UserError, match=f"^{sentence}$"):
            encode(refused, Counting(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_gives_nan_is_refused_and_leaves_nothing_to_be_taken(tmp_path: Path) -> None:
    class Broken(Counting):
        def compute(self, part: Sequence[str]) -> Embeddings:
            return np.where([[text == "a"] for text in part], np.nan, truth(part)).astype(np.float32)

    for _ in range(2):
        with pytest.raises(UserError, match="NaN"):
            encode(["b", "a"], Broken(), tmp_path)
    assert not list(tmp_path.rglob("*.npy"))


def test_lsa_puts_like_with_like_and_is_the_same_every_time() -> None:
    pies, cars = ["red apple pie", "green apple pie", "apple pie crust"], ["car engine oil", "old car engine"]
    phrases = [*pies, *cars, "engine oil car"]
    vectors = encode(phrases, Lsa(dimensions=2))
    assert vectors.dtype == np.float32 and vectors.shape == (6, 2)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    alike = vectors @ vectors.T
    assert alike[:3, :3].min() > 0.9 and alike[3:, 3:].min() > 0.9 and abs(alike[:3, 3:]).max() < 0.1
    assert np.array_equal(vectors, encode(phrases, Lsa(dimensions=2)))
    for unlearnable in (["a", "b"], ["word"]):
        with pytest.raises(UserError, match="lsa cannot learn from these texts"):
            encode(unlearnable, Lsa())


def test_lsa_can_learn_from_a_corpus() -> None:
    corpus = ["zebra lion safari", "lion safari", "zebra safari", "bolt nut screw", "nut screw", "bolt screw"]
    vectors = encode(["zebra", "lion", "bolt", "nut", "unheard"], Lsa(dimensions=2, corpus=corpus))
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.9 and alike[2, 3] > 0.9 and abs(alike[0, 2]) < 0.1
    assert not vectors[4].any()
    assert Lsa(corpus=corpus).revision != Lsa().revision


def test_cls_is_the_last_hidden_state_of_the_first_token() -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = tiny("bert")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        hidden = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).last_hidden_state
    assert np.allclose(encode(TEXTS, by_name(f"{folder}:cls")), hidden[:, 0].numpy(), atol=1e-5)


def test_a_model_that_is_no_model_or_lacks_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    wordless, deeper = (Path(shutil.copytree(tiny("bert"), tmp_path / name)) for name in ("wordless", "deeper"))
    for file in [*wordless.glob("tokenizer*"), *wordless.glob("vocab*")]:
        file.unlink()
    config = json.loads((deeper / "config.json").read_text())
    (deeper / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    for name, noun in (
        (tmp_path / "empty", "no model"),
        (f"{wordless}:cls", "tokenizer"),
        (f"{deeper}:cls", "lack weights"),
        (tiny("bert"), "pooling"),
        ("no such/model/at all", "no such"),
    ):
        with pytest.raises(UserError, match=noun):
            encode(["alpha"], by_name(str(name)))


def test_a_model_that_the_hub_does_not_have_costs_seconds(tmp_path: Path) -> None:
    program = "from builder.encoders import Model; Model('org/model').load(['a'])"
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=50)
    assert "folder, and the Hub" in done.stderr


def test_names() -> None:
    assert by_name("lsa") == Lsa()
    model = by_name("distilbert-base-uncased:cls")
    assert model == Model("distilbert-base-uncased:cls") and model.source == "distilbert-base-uncased"
