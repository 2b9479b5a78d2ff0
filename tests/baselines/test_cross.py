"""Cross-encoders: BM25's candidates in the order of the model's raw scores."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny_checkpoints import passages, texts, tiny

from eval_kit.models.cross import Cross
from eval_kit.search import bm25

QUERIES = pl.DataFrame(
    {"query_id": ["q0", "none", "q1", "q2"], "text": [texts(3, 1, 6)[0], "zzz", *texts(3, 1, 6)[1:]]}
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross")
    Cross(str(tiny("cross"))).index(iter(passages(80)), folder)
    return folder


def test_the_candidates_of_bm25_come_in_the_order_of_the_logits(index: Path):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny("cross"))
    model = AutoModelForSequenceClassification.from_pretrained(tiny("cross")).eval()
    found = dict(Cross(str(tiny("cross")), candidates=15, encode_batch=4, pair_length=20).search(QUERIES, index, 10))
    assert list(found) == QUERIES["query_id"].to_list()
    assert found["none"] == []
    for query, text in QUERIES.iter_rows():
        candidates = [one for one, _ in dict(bm25.search([(query, text)], index / "bm25" / "plain", 15))[query]]
        expected = []
        for one in candidates:
            pair = tokenizer(text, dict(passages(80))[one], truncation=True, max_length=20, return_tensors="pt")
            with torch.inference_mode():
                expected.append((one, float(model(**pair).logits)))
        expected.sort(key=lambda hit: -hit[1])
        assert [one for one, _ in found[query]] == [one for one, _ in expected][:10]
        assert np.allclose([score for _, score in found[query]], [score for _, score in expected][:10], atol=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_scores_of_a_model_in_16_bits_have_32(precision: str):
    import torch
    from sentence_transformers import CrossEncoder

    pairs = [(query, text) for query in texts(3, 1, 6) for _, text in passages(80)]
    scores = Cross(str(tiny("cross")), encode_precision=precision).scores(pairs)
    exact = Cross(str(tiny("cross"))).scores(pairs)
    assert len(np.unique(scores)) > 0.95 * len(np.unique(exact))
    assert np.corrcoef(scores, exact)[0, 1] > 0.9
    loaded = CrossEncoder(str(tiny("cross"))).to(getattr(torch, precision))
    assert (Cross("mine", loaded=loaded).scores(pairs) == scores).all()
    assert {str(weights.dtype) for weights in loaded.parameters()} == {f"torch.{precision}"}


def test_ties_are_in_the_order_of_ids_descending(index: Path, monkeypatch: pytest.MonkeyPatch):
    made = Cross(str(tiny("cross")), candidates=30)
    monkeypatch.setattr(made, "scores", lambda pairs: np.array([len(text) % 2 for _, text in pairs], np.float32))
    for hits in dict(made.search(QUERIES, index)).values():
        assert hits == sorted(sorted(hits, reverse=True), key=lambda hit: -hit[1])


def test_an_index_serves_any_model_and_is_made_anew_for_other_passages(index: Path, tmp_path: Path):
    made = Cross(str(tiny("cross")))
    before = (index / "bm25" / "plain.json").stat().st_mtime_ns
    made.index(passages(80), index)
    assert (index / "bm25" / "plain.json").stat().st_mtime_ns == before
    made.index(passages(40), tmp_path)
    made.index(passages(50), tmp_path)
    found = {one for _, hits in made.search(QUERIES, tmp_path) for one, _ in hits}
    assert any(int(one[1:]) >= 40 for one in found)
