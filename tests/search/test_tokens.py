"""Passages are tokenised as they are read, by threads or not, to the ids of the tokenizer itself."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from eval_kit.errors import UserError
from eval_kit.search import texts, tokens
from eval_kit.search.texts import PassageTexts
from eval_kit.search.tokens import PassageTokens
from tests.tiny_checkpoints import passages, tiny

PASSAGES = passages(30)


@pytest.fixture(params=[128, 8], ids=["one batch", "several threads"])
def batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "AT_ONCE", request.param)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(tiny("bert"))


@pytest.fixture
def kept(tmp_path: Path) -> PassageTexts:
    return texts.write(PASSAGES, tmp_path)


def tokenised(kept: PassageTexts, tokenizer, prompt: str = "") -> PassageTokens:
    return PassageTokens(kept, tokens.tokenizer_json(tokenizer), prompt)


@pytest.mark.usefixtures("batch")
@pytest.mark.parametrize("prompt", ["", "alpha "])
def test_ids_are_the_tokenizers_without_special_tokens(kept: PassageTexts, tokenizer, prompt: str):
    read = tokenised(kept, tokenizer, prompt)
    expected = tokenizer([prompt + text for _, text in PASSAGES], add_special_tokens=False)["input_ids"]
    assert len(read) == len(PASSAGES)
    assert [(name, ids.tolist()) for name, ids in read] == list(zip(dict(PASSAGES), expected, strict=True))
    chosen = [3, 29, 0, 3, 17, *range(30)]
    assert [ids.tolist() for ids in read.of([f"p{row}" for row in chosen])] == [expected[row] for row in chosen]
    assert read.of(["p1"])[0].dtype == np.uint16


def test_neither_a_cut_nor_filling_up_of_the_last_call_counts(kept: PassageTexts, tokenizer):
    before = tokens.tokenizer_json(tokenizer)
    tokenizer(["alpha beta"] * 2, max_length=3, truncation=True, padding="max_length")
    assert tokens.tokenizer_json(tokenizer) == before


def test_an_empty_passage_has_no_tokens(tmp_path: Path, tokenizer):
    read = tokenised(texts.write([("a", ""), ("b", "alpha beta")], tmp_path), tokenizer)
    assert [len(ids) for ids in read.of(["a", "b"])] == [0, 2]
    assert read.of([]) == []


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(tiny("bert"))
    tokenizer.add_tokens([f"word{number}" for number in range(70_000)])
    [ids] = tokenised(texts.write([("a", "word69999 alpha")], tmp_path), tokenizer).of(["a"])
    assert ids.tolist() == tokenizer("word69999 alpha", add_special_tokens=False)["input_ids"]
    assert ids.max() > 65_535 and ids.dtype == np.uint32


def test_mistakes_are_one_sentence(kept: PassageTexts, tokenizer):
    with pytest.raises(UserError, match="is not a fast tokenizer"):
        tokens.tokenizer_json(object())
    with pytest.raises(UserError, match="holds no passage nowhere"):
        tokenised(kept, tokenizer).of(["p1", "nowhere"])


def test_another_process_is_sent_no_passages(kept: PassageTexts, tokenizer):
    read = tokenised(kept, tokenizer)
    expected = [ids.tolist() for ids in read.of(["p1", "p2"])]
    sent = pickle.dumps(read)
    assert len(sent) < len(tokens.tokenizer_json(tokenizer)) + 800
    again: PassageTokens = pickle.loads(sent)
    assert [ids.tolist() for ids in again.of(["p1", "p2"])] == expected
