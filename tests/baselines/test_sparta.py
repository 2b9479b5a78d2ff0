"""SPARTA against its definition, term by term, and searched like any sparse model."""

import math

import polars as pl
import pytest
import torch
from tiny_checkpoints import WORDS, passages, tiny
from transformers import AutoModel, AutoTokenizer

from eval_kit import models
from eval_kit.errors import UserError
from eval_kit.models import sparta


def test_weights_are_those_of_the_definition(tmp_path, monkeypatch):
    monkeypatch.setattr(sparta, "TERMS", 12)
    texts = ["alpha beta", "gamma delta epsilon alpha zeta eta", "omega"]
    retriever = models.retriever("sparse", tiny("bert"), {"form": "sparta"})
    tokenizer, model = AutoTokenizer.from_pretrained(tiny("bert")), AutoModel.from_pretrained(tiny("bert")).eval()
    terms = model.get_input_embeddings().weight.tolist()
    expected = []
    for text in texts:
        with torch.inference_mode():
            vectors = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].tolist()
        weights = {}
        for term, embedding in enumerate(terms):
            greatest = max(math.fsum(map(float.__mul__, embedding, vector)) for vector in vectors)
            if term not in tokenizer.all_special_ids and greatest > 0:
                weights[term] = math.log1p(greatest)
        kept = sorted(weights, key=weights.get, reverse=True)[:12]
        expected.append({term: weights[term] for term in kept})
    assert any(len(weights) == 12 for weights in expected)
    encoded = retriever._encode(texts, "document")
    for row, weights in zip(encoded, expected, strict=True):
        assert dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) == pytest.approx(weights, abs=1e-5)

    corpus = passages(30)
    retriever.index(corpus, tmp_path)
    queries = pl.DataFrame({"query_id": ["q1", "q2"], "text": ["alpha alpha beta", "unknown"]})
    hits = dict(retriever.search(queries, tmp_path, depth=5))
    matrix = retriever._encode([text for _, text in corpus], "document").toarray()
    alpha, beta = tokenizer.convert_tokens_to_ids(["alpha", "beta"])
    scores = 2 * matrix[:, alpha] + matrix[:, beta]
    assert "alpha" in WORDS and [score for _, score in hits["q1"]] == pytest.approx(
        sorted(scores, reverse=True)[:5], abs=1e-5
    )
    assert hits["q2"] == []


def test_a_plain_transformer_needs_its_form():
    with pytest.raises(UserError, match="is a bare transformer, not a sparse encoder"):
        models.retriever("sparse", tiny("bert"), {})
    with pytest.raises(UserError, match="there is no sparse form 'spartan'; there is sparta"):
        models.retriever("sparse", tiny("bert"), {"form": "spartan"})
