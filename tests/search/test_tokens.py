"""Passages are tokenised once per tokenizer, and batches of their ids are what the tokenizer itself would make."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoints import passages, tiny
from transformers import AutoTokenizer

from eval_kit.errors import UserError
from search import shards, tokens
from search.tokens import PassageTokens

PASSAGES = passages(30)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD", 8)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(tiny("bert"))


def content(folder: Path) -> dict[str, bytes]:
    """All that is in a store but for the times that it took."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {path.name: path.read_bytes() for path in files if path.name not in (".lock", shards.MANIFEST)}


@pytest.mark.parametrize("length", [5, 12, 64])
def test_a_batch_is_what_the_tokenizer_makes(tmp_path: Path, tokenizer, length: int):
    stored = tokens.write(PASSAGES, tmp_path, tokenizer, "tiny")
    rows = np.array([3, 29, 0, 3, 17])
    ids, mask = stored.batch(rows, length, [tokenizer.cls_token_id], [tokenizer.sep_token_id], tokenizer.pad_token_id)
    texts = [PASSAGES[row][1] for row in rows]
    expected = tokenizer(texts, max_length=length, truncation=True, padding=True, return_tensors="np")
    assert ids.tolist() == expected["input_ids"].tolist()
    assert mask.tolist() == expected["attention_mask"].tolist()
    assert stored._shards.array("tokens").dtype == np.uint16


def test_markers_and_empty_passages(tmp_path: Path, tokenizer):
    stored = tokens.write([("a", ""), ("b", "alpha beta"), ("c", "gamma")], tmp_path, tokenizer, "tiny")
    alpha, beta, gamma = tokenizer("alpha beta gamma", add_special_tokens=False)["input_ids"]
    ids, mask = stored.batch(np.array([1, 0, 2]), 5, [901, 902], [903], 0)
    assert ids.tolist() == [[901, 902, alpha, beta, 903], [901, 902, 903, 0, 0], [901, 902, gamma, 903, 0]]
    assert mask.sum(1).tolist() == [5, 3, 4]


def test_the_digest_is_the_tokenizers_not_its_last_calls(tokenizer):
    before = tokens.digest(tokenizer)
    tokenizer(["alpha beta"] * 2, max_length=3, truncation=True, padding="max_length")
    assert tokens.digest(tokenizer) == before
    other = AutoTokenizer.from_pretrained(tiny("bert"))
    other.add_tokens(["zzz"])
    assert tokens.digest(other) != before


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(tiny("bert"))
    tokenizer.add_tokens([f"word{number}" for number in range(70_000)])
    stored = tokens.write([("a", "word69999 alpha")], tmp_path, tokenizer, "tiny")
    ids, _ = stored.batch(np.array([0]), 9, [], [], 0)
    assert ids.tolist() == [tokenizer("word69999 alpha", add_special_tokens=False)["input_ids"]]
    assert ids.max() > 65_535 and stored._shards.array("tokens").dtype == np.uint32


def test_what_is_complete_is_not_read_again(tmp_path: Path, tokenizer):
    tokens.write(PASSAGES, tmp_path, tokenizer, "tiny")
    assert len(tokens.write(iter(()), tmp_path, tokenizer, "tiny")) == 30
    assert len(tokens.read(tmp_path, tokenizer, "tiny")) == 30


def test_mistakes_are_one_sentence(tmp_path: Path, tokenizer):
    with pytest.raises(UserError, match="holds no tokens, or not all of them; tokenise the passages first"):
        tokens.read(tmp_path, tokenizer, "tiny")
    tokens.write(PASSAGES, tmp_path, tokenizer, "tiny")
    before = content(tmp_path)
    other = AutoTokenizer.from_pretrained(tiny("bert"))
    other.add_tokens(["zzz"])
    for use in (lambda *state: tokens.write(PASSAGES, tmp_path, *state), lambda *state: tokens.read(tmp_path, *state)):
        with pytest.raises(UserError, match="holds tokens of another collection; name another folder"):
            use(tokenizer, "small")
        with pytest.raises(UserError, match="holds tokens by another tokenizer; name another folder"):
            use(other, "tiny")
    assert content(tmp_path) == before
    with pytest.raises(UserError, match="is no fast tokenizer"):
        tokens.digest(object())


WRITER = """
import sys, time
from pathlib import Path
from tiny_checkpoints import passages, tiny
from transformers import AutoTokenizer
from search import shards, tokens
shards.SHARD = 8
def slowly():
    for number, passage in enumerate(passages(30)):
        time.sleep(float(sys.argv[2]))
        yield passage
tokens.write(slowly(), Path(sys.argv[1]), AutoTokenizer.from_pretrained(tiny("bert")), "tiny")
"""


def writer(folder: Path, seconds: float) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    paths = [str(here.parents[1]), str(here.parent / "baselines")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(seconds)], env=environment)


def test_killed_it_goes_on_to_the_same_bytes(tmp_path: Path, tokenizer):
    with writer(tmp_path / "killed", 0.03) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "killed" / "00001").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="holds no tokens, or not all of them"):
        tokens.read(tmp_path / "killed", tokenizer, "tiny")
    tokens.write(PASSAGES, tmp_path / "killed", tokenizer, "tiny")
    tokens.write(PASSAGES, tmp_path / "whole", tokenizer, "tiny")
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_two_grids_at_once_end_with_one_whole_store(tmp_path: Path, tokenizer):
    both = [writer(tmp_path / "both", 0.02) for _ in range(2)]
    assert [process.wait(300) for process in both] == [0, 0]
    tokens.write(PASSAGES, tmp_path / "whole", tokenizer, "tiny")
    assert content(tmp_path / "both") == content(tmp_path / "whole")


def test_another_process_is_sent_the_folder_only(tmp_path: Path, tokenizer):
    stored = tokens.write(PASSAGES, tmp_path, tokenizer, "tiny")
    batch = stored.batch(np.array([1, 2]), 9, [], [], 0)
    sent = pickle.dumps(stored)
    assert len(sent) < 300
    again: PassageTokens = pickle.loads(sent)
    assert again.batch(np.array([1, 2]), 9, [], [], 0)[0].tolist() == batch[0].tolist()
