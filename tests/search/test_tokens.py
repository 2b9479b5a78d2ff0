"""Passages are tokenised once per tokenizer, whoever reads them, and however often that is interrupted."""

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
from eval_kit.search import shards, texts, tokens
from eval_kit.search.texts import PassageTexts
from eval_kit.search.tokens import PassageTokens

PASSAGES = passages(30)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD", 8)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(tiny("bert"))


@pytest.fixture
def kept(tmp_path: Path) -> PassageTexts:
    return texts.write(PASSAGES, tmp_path)


def content(folder: Path) -> dict[str, bytes]:
    """All that is in a store but for the times that it took."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {path.name: path.read_bytes() for path in files if path.suffix == ".npy"}


@pytest.mark.parametrize("prompt", ["", "alpha "])
def test_ids_are_the_tokenizers_without_special_tokens(kept: PassageTexts, tokenizer, prompt: str):
    stored = tokens.write(kept, tokenizer, prompt)
    expected = tokenizer([prompt + text for _, text in PASSAGES], add_special_tokens=False)["input_ids"]
    assert [(name, ids.tolist()) for name, ids in stored] == list(zip(dict(PASSAGES), expected, strict=True))
    chosen = [3, 29, 0, 3, 17]
    assert [ids.tolist() for ids in stored.of([f"p{row}" for row in chosen])] == [expected[row] for row in chosen]
    assert stored.of(["p1"])[0].dtype == np.uint16


def test_neither_a_cut_nor_filling_up_of_the_last_call_counts(kept: PassageTexts, tokenizer):
    before = tokens.write(kept, tokenizer)
    tokenizer(["alpha beta"] * 2, max_length=3, truncation=True, padding="max_length")
    assert tokens.write(kept, tokenizer).folder == before.folder


def test_an_empty_passage_has_no_tokens(tmp_path: Path, tokenizer):
    stored = tokens.write(texts.write([("a", ""), ("b", "alpha beta")], tmp_path), tokenizer)
    assert [len(ids) for ids in stored.of(["a", "b"])] == [0, 2]


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(tiny("bert"))
    tokenizer.add_tokens([f"word{number}" for number in range(70_000)])
    [ids] = tokens.write(texts.write([("a", "word69999 alpha")], tmp_path), tokenizer).of(["a"])
    assert ids.tolist() == tokenizer("word69999 alpha", add_special_tokens=False)["input_ids"]
    assert ids.max() > 65_535 and ids.dtype == np.uint32


def test_each_tokenizer_and_prompt_has_its_own_and_none_is_made_twice(
    kept: PassageTexts, tokenizer, monkeypatch: pytest.MonkeyPatch
):
    longer = AutoTokenizer.from_pretrained(tiny("bert"))
    longer.add_tokens(["zzz"])
    stored = [tokens.write(kept, *made) for made in ((tokenizer,), (longer,), (tokenizer, "alpha "))]
    assert len({made.folder for made in stored}) == 3
    monkeypatch.setattr(tokens, "_encode", None)
    assert tokens.write(kept, AutoTokenizer.from_pretrained(tiny("bert"))) == stored[0]


def test_mistakes_are_one_sentence(kept: PassageTexts, tmp_path: Path, tokenizer):
    stored = tokens.write(kept, tokenizer)
    before = content(stored.folder)
    for name, sentence in (("collection", "of another collection"), ("tokenizer", "by another tokenizer")):
        state = shards.state_of(stored.folder, "tokens")
        whole = (stored.folder / "tokens.json").read_bytes()
        (stored.folder / "tokens.json").write_text(str(state | {name: "x"}).replace("'", '"'), encoding="utf-8")
        with pytest.raises(UserError, match=f"holds tokens {sentence}; remove it"):
            tokens.write(kept, tokenizer)
        (stored.folder / "tokens.json").write_bytes(whole)
    assert content(stored.folder) == before
    with pytest.raises(UserError, match="is not a fast tokenizer"):
        tokens.write(kept, object())
    with pytest.raises(UserError, match="holds no passage nowhere"):
        stored.of(["p1", "nowhere"])


def test_many_passages_are_tokenised_by_several_processes(
    kept: PassageTexts, tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch
):
    from concurrent.futures import ThreadPoolExecutor

    alone = content(tokens.write(kept, tokenizer).folder)
    monkeypatch.setattr(tokens, "MANY", 30)
    monkeypatch.setattr(tokens, "pool", ThreadPoolExecutor)
    assert content(tokens.write(texts.write(PASSAGES, tmp_path / "again"), tokenizer).folder) == alone


WRITER = """
import sys, time
from pathlib import Path
from tiny_checkpoints import tiny
from transformers import AutoTokenizer
from eval_kit.search import shards, tokens
from eval_kit.search.texts import PassageTexts
shards.SHARD = 8
tokenizer = AutoTokenizer.from_pretrained(tiny("bert"))
encode = tokens._encode
def slowly(*arguments):
    time.sleep(float(sys.argv[2]))
    return encode(*arguments)
tokens._encode = slowly
tokens.write(PassageTexts(Path(sys.argv[1])), tokenizer)
"""


def writer(kept: PassageTexts, seconds: float) -> subprocess.Popen[str]:
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    return subprocess.Popen([sys.executable, "-c", WRITER, str(kept.folder), str(seconds)], env=environment)


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_bytes(kept: PassageTexts, tmp_path: Path, tokenizer):
    with writer(kept, 0.3) as process:
        deadline = time.monotonic() + 300
        while not list(kept.folder.glob("tokens/*/done.jsonl")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    killed = tokens.write(kept, tokenizer)
    whole = tokens.write(texts.write(PASSAGES, tmp_path / "whole"), tokenizer)
    assert content(killed.folder) == content(whole.folder)


@pytest.mark.slow
def test_three_grids_at_once_end_with_one_whole_store(kept: PassageTexts, tmp_path: Path, tokenizer):
    grids = [writer(kept, 0.1) for _ in range(3)]
    assert [process.wait(300) for process in grids] == [0, 0, 0]
    stored = tokens.write(kept, tokenizer)
    whole = tokens.write(texts.write(PASSAGES, tmp_path / "whole"), tokenizer)
    assert content(stored.folder) == content(whole.folder)


def test_another_process_is_sent_the_folders_only(kept: PassageTexts, tokenizer):
    stored = tokens.write(kept, tokenizer)
    expected = [ids.tolist() for ids in stored.of(["p1", "p2"])]
    sent = pickle.dumps(stored)
    assert len(sent) < 800
    again: PassageTokens = pickle.loads(sent)
    assert [ids.tolist() for ids in again.of(["p1", "p2"])] == expected
