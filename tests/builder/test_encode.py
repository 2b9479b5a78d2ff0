import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from builder import encoders as module
from builder.encoders import Compute, Embeddings, embed, encode
from eval_kit.errors import UserError

TEXTS = ["what is a shebang", "how long do wisdom teeth take", "a", "when did rock n roll begin", "rock n roll"] * 3


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
    texts = [f"{i} {'x' * i}" for i in range(15)]
    stopped, resumed = Counting(budget=9), Counting()
    with pytest.raises(KeyboardInterrupt):
        encode(texts, stopped, tmp_path)
    assert len(stopped.seen) == 8
    assert list(tmp_path.rglob("shards"))
    assert np.array_equal(encode(texts, resumed, tmp_path), truth(texts))
    assert sorted(stopped.seen + resumed.seen) == sorted(texts)
    assert not list(tmp_path.rglob("shards"))


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
    for texts, sentence in (
        ([], r"there are no texts to encode"),
        (["a", "", "b", " \t"], r"text 2 is empty \(2 in all\)"),
        (pl.Series(["a", None]), r"text 2 is empty \(1 in all\)"),
    ):
        with pytest.raises(UserError, match=f"^{sentence}$"):
            encode(texts, Counting(), tmp_path)
    assert not list(tmp_path.iterdir())
    encoder = Counting()
    with pytest.raises(UserError, match="query id '1' appears more than once"):
        embed(pl.DataFrame({"query_id": ["1", "1"], "text": ["a", "b"]}), encoder)
    assert not encoder.loaded


def test_an_encoder_that_gives_nan_is_refused_and_leaves_nothing_to_be_taken(tmp_path: Path) -> None:
    class Broken(Counting):
        def compute(self, part: Sequence[str]) -> Embeddings:
            return np.where([[text == "a"] for text in part], np.nan, truth(part)).astype(np.float32)

    for _ in range(2):
        with pytest.raises(UserError, match=r"^encoder 'counting' gives NaN or infinity for the text 'a'$"):
            encode(["b", "a"], Broken(), tmp_path)
    assert not list(tmp_path.rglob("*.npy"))
