"""Late interaction: exact is MaxSim by its definition; the two indexes find what it finds."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_checkpoints import passages, texts, tiny

from eval_kit.errors import UserError
from eval_kit.models import retriever
from eval_kit.models.multivector import MultiVector
from eval_kit.search import late, shards
from eval_kit.search.shards import Shards

QUERIES = pl.DataFrame({"query_id": [f"q{n}" for n in range(7)], "text": texts(7, 1, 6)})


def encoded(folder: Path, tokens: list[np.ndarray], ids: list[str]) -> Shards:
    rows = iter(tokens)

    def encode(some: list[str]) -> shards.Arrays:
        block = [next(rows) for _ in some]
        return {"tokens": np.concatenate(block), "lengths": np.array([len(one) for one in block], np.int32)}

    return shards.write(((one, "text") for one in ids), folder, encode, "fixed")


def maxsim(query: np.ndarray, passage: np.ndarray) -> float:
    return float(sum(max(float(one @ other) for other in passage) for one in query))


def brute_force(queries: list[np.ndarray], tokens: list[np.ndarray], ids: list[str], depth: int):
    rankings = []
    for query in queries:
        hits = [(one, maxsim(query, passage)) for one, passage in zip(ids, tokens, strict=True) if len(passage)]
        rankings.append(sorted(sorted(hits, reverse=True), key=lambda hit: -hit[1])[:depth])
    return rankings


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_exact_is_brute_force_at_every_tie(data: st.DataObject, tmp_path_factory):
    def drawn(number: int, longest: int, shortest: int = 1) -> list[np.ndarray]:
        lengths = data.draw(st.lists(st.integers(shortest, longest), min_size=number, max_size=number))
        flat = data.draw(st.lists(st.integers(-2, 2), min_size=2 * sum(lengths), max_size=2 * sum(lengths)))
        values = np.array(flat, np.float32).reshape(-1, 2)
        return np.split(values, np.cumsum(lengths)[:-1])

    count = data.draw(st.integers(1, 12))
    tokens, queries = drawn(count, 4, shortest=0), drawn(data.draw(st.integers(1, 3)), 3)
    ids = data.draw(st.lists(st.text("a1é-", min_size=1, max_size=4), min_size=count, max_size=count, unique=True))
    depth = data.draw(st.integers(1, 14))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", data.draw(st.integers(1, 8)))
        patch.setattr(late, "GROUP", data.draw(st.integers(1, 3)))
        patch.setattr(late, "BLOCK_ON_CPU", data.draw(st.integers(1, 20)))
        stored = encoded(tmp_path_factory.mktemp("tokens"), tokens, ids)
        assert list(late.exact(queries, stored, depth, "cpu")) == brute_force(queries, tokens, ids, depth)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory):
    """1,200 passages of 5 to 20 unit vectors, in shards of 500; queries near some of their tokens."""
    random = np.random.default_rng(0)

    def unit(values: np.ndarray) -> np.ndarray:
        return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)

    tokens = [unit(random.normal(size=(random.integers(5, 20), 32))) for _ in range(1_200)]
    queries = [unit(tokens[place][:4] + 0.05 * random.normal(size=(4, 32))) for place in range(0, 1_200, 80)]
    ids = [f"{number}" for number in random.permutation(1_200)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", 500)
        return encoded(tmp_path_factory.mktemp("real"), tokens, ids), queries, tokens, ids


def test_exact_is_brute_force_over_many_shards_and_blocks(real, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(late, "BLOCK_ON_CPU", 100)
    stored, queries, tokens, ids = real
    for hits, expected in zip(late.exact(queries, stored, 20), brute_force(queries, tokens, ids, 20), strict=True):
        assert [one for one, _ in hits] == [one for one, _ in expected]
        assert [score for _, score in hits] == pytest.approx([score for _, score in expected], rel=1e-4)


@pytest.mark.slow
def test_plaid_finds_the_same_first_passages_in_a_smaller_index(real, tmp_path: Path):
    stored, queries, tokens, ids = real
    late.build(stored, "plaid", tmp_path)
    found = list(late.plaid(queries, late.load(stored, tmp_path), stored, 10))
    expected = brute_force(queries, tokens, ids, 10)
    assert [hits[0][0] for hits in found] == [hits[0][0] for hits in expected]
    assert all(hits == sorted(hits, key=lambda hit: -hit[1]) for hits in found)


@pytest.mark.slow
def test_plaid_keeps_no_tokens_and_says_so_to_whoever_asks_for_them(
    real, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shards, "SHARD", 500)
    _, queries, tokens, ids = real
    stored = encoded(tmp_path, tokens, ids)
    late.build(stored, "plaid", tmp_path)
    assert not (tmp_path / "tokens.npy").exists()
    again = encoded(tmp_path, [], ids)  # encodes nothing
    late.build(again, "plaid", tmp_path)
    hits = next(iter(late.plaid(queries[:1], late.load(again, tmp_path), again, 5)))
    assert hits[0][0] == ids[0]
    with pytest.raises(UserError, match=r"tokens\.npy is missing: making an index of it removes it; index the"):
        late.build(again, "exact", tmp_path)
    with pytest.raises(UserError, match=r"tokens\.npy: is missing, and passages have changed; index them in another"):
        encoded(tmp_path, tokens, [*ids[:-1], "another"])


def test_a_failing_plaid_is_one_sentence_and_leaves_the_tokens(tmp_path: Path, monkeypatch):
    """The library panics at four dimensions, of which it cannot pack residuals."""
    narrow = encoded(tmp_path, [np.eye(4, dtype=np.float32)] * 9, [f"p{n}" for n in range(9)])
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(UserError) as caught:
        late.build(narrow, "plaid", tmp_path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{tmp_path}: fast-plaid cannot build the index: ") and "shape" in sentence
    assert "\n" not in sentence and "frame" not in sentence
    assert {path.name for path in tmp_path.iterdir()} == before | {".build.lock"}

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fast_plaid.search.FastPlaid.create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        late.build(narrow, "plaid", tmp_path)


@pytest.mark.parametrize("engine", late.ENGINES)
def test_a_checkpoint_is_searched_as_the_library_would(engine, tmp_path: Path):
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(tiny("multivector")))
    made = retriever("multivector", tiny("multivector"), {"engine": engine, "encode_batch": 4, "steps": 100})
    made.index(passages(60), tmp_path)
    found = dict(made.search(QUERIES, tmp_path, 5))
    theirs = model.similarity(
        model.encode_query(QUERIES["text"].to_list()), model.encode_document([text for _, text in passages(60)])
    ).numpy()
    assert list(found) == QUERIES["query_id"].to_list()
    near = {"exact": 1e-4, "plaid": 0.05}[engine]
    for hits, scores in zip(found.values(), theirs, strict=True):
        assert all(scores[int(one[1:])] == pytest.approx(score, rel=near) for one, score in hits)
        if engine == "exact":
            assert [score for _, score in hits] == pytest.approx(sorted(scores.tolist(), reverse=True)[:5], rel=near)


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


def test_a_checkpoint_of_another_architecture_is_refused():
    for name, what in (("dense", "is a dense encoder"), ("sparse", "is a sparse enc"), ("masked", "is a masked lang")):
        with pytest.raises(UserError, match=f"{what}.*, not a late-interaction encoder"):
            MultiVector(str(tiny(name)))
    with pytest.raises(UserError, match="no late-interaction engine 'plaidd'; there are exact, plaid"):
        MultiVector(str(tiny("multivector")), engine="plaidd")
