"""Late interaction: PLAID finds what exact search finds, in less space."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.models.opening import retriever
from eval_kit.search import late, shards
from tests.search.oracle import brute_force, written
from tests.tiny_checkpoints import passages, tiny


@pytest.mark.slow
def test_plaid_finds_the_same_first_passages_keeps_no_tokens_and_says_so_to_whoever_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """1,200 passages of 5 to 20 unit vectors, in shards of 500; queries near some of their tokens."""
    random = np.random.default_rng(0)

    def unit(values: np.ndarray) -> np.ndarray:
        return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)

    monkeypatch.setattr(shards, "SHARD", 500)
    rows = [unit(random.normal(size=(random.integers(5, 20), 32))) for _ in range(1_200)]
    queries = [unit(rows[row][:4] + 0.05 * random.normal(size=(4, 32))) for row in range(0, 1_200, 80)]
    ids = [f"{number}" for number in random.permutation(1_200)]
    expected = [hits[0][0] for hits in brute_force(queries, rows, ids, 1)]
    stored = written(tmp_path, rows, ids)
    late.build(stored, "plaid", tmp_path)
    assert not (tmp_path / "tokens.npy").exists()
    again = written(tmp_path, [], ids)  # encodes nothing
    late.build(again, "plaid", tmp_path)
    for shown in (stored, again):
        rankings = list(late.plaid(queries, late.load(shown, tmp_path), shown, 10))
        assert [hits[0][0] for hits in rankings] == expected
        assert all(hits == sorted(hits, key=lambda hit: -hit[1]) for hits in rankings)
    with pytest.raises(UserError, match=r"tokens\.npy"):
        late.build(again, "exact", tmp_path)
    with pytest.raises(UserError, match=r"tokens\.npy"):
        written(tmp_path, rows, [*ids[:-1], "another"])


def test_a_failing_plaid_is_one_sentence_and_leaves_the_tokens(tmp_path: Path, monkeypatch):
    """The library panics at four dimensions, of which it cannot pack residuals."""
    narrow = written(tmp_path, [np.eye(4, dtype=np.float32)] * 9, [f"p{n}" for n in range(9)])
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(UserError) as caught:
        late.build(narrow, "plaid", tmp_path)
    sentence = str(caught.value)
    assert sentence.startswith("fast-plaid ") and str(tmp_path) in sentence and "shape" in sentence
    assert "\n" not in sentence and "frame" not in sentence
    assert {path.name for path in tmp_path.iterdir()} <= before | {".build.lock", ".lock"}

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fast_plaid.search.FastPlaid.create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        late.build(narrow, "plaid", tmp_path)


@pytest.mark.slow
def test_many_passages_are_searched_by_plaid_and_few_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(late, "MANY_PASSAGES", 20)
    made = retriever("multivector", tiny("multivector"), {"store": "float16"})
    queries = pl.DataFrame({"query_id": ["q"], "text": ["alpha beta"]})
    for count, by_plaid in ((19, False), (20, True)):
        folder = tmp_path / str(count)
        made.index(passages(count), folder)
        assert (folder / "plaid").is_dir() == by_plaid
        [(_, hits)] = made.search(queries, folder, 5)
        assert hits and (by_plaid or len(hits) == 5)
