"""Twenty-five kinds of model, each by `eval_kit run`, ShiftEvaluator, MTEB's task and numpy: one figure."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import eval_kit
from eval_kit.release import Release, open_release
from eval_kit.release.pool import Pool, pool
from tests.tiny_checkpoints import SIZES, SPECIAL, save_tokenizer

WIDTH = 32
PAGE = Path(__file__).parents[2] / "docs/tutorials/trained-model.md"
type Ranking = Mapping[str, Mapping[str, float]]
"""Scores of passages by query."""


@pytest.fixture(scope="module")
def small(trainable_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Some twenty queries of the topic shift."""
    from builder import lite

    folder = tmp_path_factory.mktemp("small")
    lite.make(trainable_release, folder / "small", 1, 2, cache=folder / "cache", queries=4, shifts=["topic"])
    return pool(open_release(folder / "small"), "topic")


@pytest.fixture(scope="module")
def tokenizer(small: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that knows every word: to a model that reads [UNK] all texts of a length are equal, and their order luck."""
    words = {
        word.lower() for column in (small.queries, small.passages) for text in column["text"] for word in text.split()
    }
    folder = tmp_path_factory.mktemp("tokenizer") / "bert"
    save_tokenizer([*SPECIAL, *sorted(words), "[", "]", "d", "q", "alpha", "beta", "yes", "no"], folder)
    return folder


def transformer(tokenizer: Path, architecture: str = "BertModel", dtype: Any = torch.float32, **config: Any) -> str:
    """A folder of a plain transformer with random weights."""
    import transformers

    folder = tokenizer.parent / f"{architecture}-{dtype}-{len(config)}"
    if not folder.exists():
        transformers.set_seed(13)
        words = len((tokenizer / "vocab.txt").read_text(encoding="utf-8").splitlines())
        sizes: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": 2, **SIZES, "vocab_size": words}
        kind: Any = transformers.Qwen3Config if "Qwen3" in architecture else transformers.BertConfig
        if "Qwen3" in architecture:
            sizes |= {"num_key_value_heads": 1, "head_dim": 16}
        made = getattr(transformers, architecture)(kind(**sizes, initializer_range=0.1, **config))
        made.get_input_embeddings().weight.data.mul_(20)  # so that texts of like words are alike
        made.to(dtype).save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    return str(folder)


def dense(tokenizer: Path, *heads: Any, pooling: Any = "mean", base: Any = None, **how: Any) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    first = Transformer(base or transformer(tokenizer), **how.pop("transformer", {}))
    return SentenceTransformer(modules=[first, Pooling(WIDTH, **as_options(pooling)), *heads], **how)


def as_options(pooling: Any) -> dict[str, Any]:
    return pooling if isinstance(pooling, dict) else {"pooling_mode": pooling}


def half(tokenizer: Path, dtype: Any, **how: Any) -> Any:
    return dense(tokenizer, base=transformer(tokenizer, dtype=dtype), **how)


def with_head(tokenizer: Path) -> Any:
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(1)
    return dense(tokenizer, Dense(WIDTH, 12), pooling="cls")


def normalized(tokenizer: Path) -> Any:
    from sentence_transformers.base.modules import Normalize

    return dense(tokenizer, Normalize(), similarity_fn_name="dot")


def of_two(tokenizer: Path) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    routes = [
        [*dense(tokenizer, pooling=pooling, transformer={"max_seq_length": length})]
        for pooling, length in (("cls", 6), ("mean", 20))
    ]
    return SentenceTransformer(modules=[Router.for_query_document(*routes)])


def words(tokenizer: Path) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    one = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    weights = np.random.default_rng(5).normal(size=(one.get_vocab_size(), 24)).astype(np.float32)
    return SentenceTransformer(modules=[StaticEmbedding(one, embedding_weights=weights)])


def decoder(tokenizer: Path) -> Any:
    model = dense(
        tokenizer, base=transformer(tokenizer, "Qwen3Model"), pooling="lasttoken", prompts={"query": "alpha "}
    )
    model.tokenizer.padding_side = "left"
    return model


def splade(tokenizer: Path, **how: Any) -> Any:
    from sentence_transformers import SparseEncoder

    return SparseEncoder(transformer(tokenizer, "BertForMaskedLM"), **how)


def without_inference(tokenizer: Path) -> Any:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    documents = splade(tokenizer)
    weights = torch.rand(len(documents.tokenizer), generator=torch.Generator().manual_seed(7))
    queries = SparseStaticEmbedding(documents.tokenizer, weight=weights)
    return SparseEncoder(modules=[Router.for_query_document([queries], [*documents])])


def auto_encoder(tokenizer: Path) -> Any:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    torch.manual_seed(2)
    head = SparseAutoEncoder(WIDTH, hidden_dim=96, k=12, k_aux=8)
    return SparseEncoder(modules=[*dense(tokenizer), head], similarity_fn_name="cosine")


def late(tokenizer: Path, **how: Any) -> Any:
    from sentence_transformers import MultiVectorEncoder

    torch.manual_seed(3)
    return MultiVectorEncoder(transformer(tokenizer), **how)


def cross(tokenizer: Path, architecture: str = "BertForSequenceClassification", **how: Any) -> Any:
    from sentence_transformers import CrossEncoder

    config = {"num_labels": 1} if architecture.startswith("Bert") else {}
    return CrossEncoder(transformer(tokenizer, architecture, **config), **how)


KINDS: dict[str, Callable[[Path], Any]] = {
    "dense, cosine": partial(dense, similarity_fn_name="cosine"),
    "dense, dot": partial(dense, similarity_fn_name="dot"),
    "dense, euclidean": partial(dense, similarity_fn_name="euclidean"),
    "dense, manhattan": partial(dense, similarity_fn_name="manhattan"),
    "dense, bfloat16, cosine": partial(half, dtype=torch.bfloat16, similarity_fn_name="cosine"),
    "dense, float16, dot": partial(half, dtype=torch.float16, similarity_fn_name="dot"),
    "dense, prompts": partial(dense, prompts={"query": "alpha beta ", "document": "beta "}),
    "dense, default prompt outside the pooling": partial(
        dense,
        prompts={"all": "alpha beta beta alpha "},
        default_prompt_name="all",
        pooling={"pooling_mode": "mean", "include_prompt": False},
    ),
    "dense, truncated (Matryoshka)": partial(dense, truncate_dim=10),
    "dense, Normalize and dot": normalized,
    "dense, CLS and a linear head": with_head,
    "dense, two encoders of two lengths (Router)": of_two,
    "dense, decoder, last token, padded on the left": decoder,
    "word vectors (StaticEmbedding)": words,
    "SPLADE": splade,
    "SPLADE, cosine": partial(splade, similarity_fn_name="cosine"),
    "SPLADE, euclidean": partial(splade, similarity_fn_name="euclidean"),
    "SPLADE, manhattan": partial(splade, similarity_fn_name="manhattan"),
    "SPLADE without inference for queries (Router)": without_inference,
    "CSR, cosine": auto_encoder,
    "late interaction": late,
    "late interaction, prompts": partial(late, prompts={"query": "alpha ", "document": "beta "}),
    "cross-encoder": cross,
    "cross-encoder, default prompt": partial(cross, prompts={"all": "alpha beta "}, default_prompt_name="all"),
    "re-ranker that generates": partial(cross, architecture="Qwen3ForCausalLM"),
}


def by_numpy(model: Any, small: Pool, candidates: Ranking) -> Ranking:
    """The model's own similarity, or what it predicts of each candidate, in 32 bits."""
    queries, passages = dict(small.queries.iter_rows()), dict(small.passages.iter_rows())
    if hasattr(model, "predict"):
        raw = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
        found = {}
        for query, texts in candidates.items():
            scores = model.predict([(queries[query], passages[passage]) for passage in texts], **raw)
            found[query] = dict(zip(texts, scores.tolist(), strict=True))
        return found
    how = {} if "MultiVector" in type(model).__name__ else {"convert_to_tensor": True}
    one, other = model.encode_query([*queries.values()], **how), model.encode_document([*passages.values()], **how)
    vectors = (batch.float() if how else batch for batch in (one, other))
    rows = model.similarity(*vectors).to_dense().tolist()
    return {query: dict(zip(passages, row, strict=True)) for query, row in zip(queries, rows, strict=True)}


def first_ten(ranking: Ranking) -> dict[str, list[str]]:
    best = {}
    for query, scores in ranking.items():
        best[query] = sorted(scores, key=lambda passage: (scores[passage], passage), reverse=True)[:10]
    return best


def reciprocal_ranks(ranking: Ranking, small: Pool) -> dict[str, float]:
    """RR@10 of each test set."""
    relevant = set(small.qrels.filter(small.qrels["relevance"] > 0).select("query_id", "passage_id").iter_rows())
    values = {}
    for query, passages in first_ten(ranking).items():
        ranks = [rank for rank, passage in enumerate(passages, start=1) if (query, passage) in relevant]
        values[query] = 1 / ranks[0] if ranks else 0.0
    return {one.name: float(np.mean([values.get(query, 0.0) for query in one.queries])) for one in small.test_sets}


def of_file(run: Path) -> Ranking:
    ranking: dict[str, dict[str, float]] = {}
    for line in run.read_text().splitlines():
        query, _, passage, _, score, _ = line.split()
        ranking.setdefault(query, {})[passage] = float(score)
    return ranking


def by_mteb(model: Any, small: Pool, folder: Path, candidates: Ranking) -> tuple[Ranking, dict[str, float]]:
    import mteb

    from eval_kit.integrations.mteb import run, tasks

    [task] = tasks(small.release, "topic")
    if hasattr(model, "predict"):
        first = {"mteb_model_meta": {"model_name": "bm25", "revision": "1"}, "default": {"test": candidates}}
        (folder / "first.json").write_text(json.dumps(first))
        task.convert_to_reranking(folder / "first.json", top_k=100)
    quiet: Any = {"show_progress_bar": False, "encode_kwargs": {"show_progress_bar": False}}
    made = mteb.evaluate(model, task, cache=None, prediction_folder=folder, **quiet).task_results
    scores = made[0].scores["test"][0]
    figures = {name.removesuffix(" RR@10"): value for name, value in scores.items() if name.endswith(" RR@10")}
    return run(folder / task.prediction_file_name), figures


@pytest.fixture(scope="module")
def candidates(small: Pool, tmp_path_factory: pytest.TempPathFactory) -> Ranking:
    """BM25's, of each query that it finds something for."""
    out = tmp_path_factory.mktemp("bm25")
    eval_kit.run("bm25", small.release, out, pivots=[])
    return of_file(out / "bm25.trec")


@pytest.mark.parametrize("kind", KINDS)
def test_every_door_gives_one_figure(
    kind: str, small: Pool, tokenizer: Path, candidates: Ranking, tmp_path: Path
) -> None:
    pytest.importorskip("mteb")
    from eval_kit.integrations.sentence_transformers import ShiftEvaluator

    made = KINDS[kind](tokenizer)
    made.save_pretrained(str(tmp_path / "model"))
    model = type(made)(str(tmp_path / "model"))
    wanted = by_numpy(model, small, candidates)
    figures = reciprocal_ranks(wanted, small)
    rankings, doors = [], []
    for name, given in {"folder": str(tmp_path / "model"), "memory": model}.items():
        card = eval_kit.run(given, small.release, tmp_path, pivots=[], name=name)
        stored = next((half for half in ("bfloat16", "float16") if half in kind), "float32")
        assert any(f"as {'stored' if name == 'folder' else 'given'}: {stored}" in note for note in card.notes())
        doors.append(dict(card.to_polars().filter(measure="RR@10").select("test_set", "value").iter_rows()))
        rankings.append(of_file(tmp_path / f"{name}.trec"))
    found = ShiftEvaluator(small.release, "topic", candidates if hasattr(model, "predict") else None)(model)
    doors.append({name: found[f"{name}_RR@10"] for name in figures})
    ranking, by_task = by_mteb(model, small, tmp_path, candidates)

    assert any(figures.values())
    for door in (*doors, by_task):
        assert door == pytest.approx(figures, abs=1e-5)  # MTEB rounds
    for found_ranking in (*rankings, ranking):  # in other batches 32 bits round otherwise, most where squares cancel
        for query, passages in first_ten(found_ranking).items():
            scores = wanted[query]
            best = [scores[passage] for passage in first_ten(wanted)[query]]
            bound = (5e-5 if "euclidean" in kind else 2e-6) * max(map(abs, scores.values()))
            assert [scores[passage] for passage in passages] == pytest.approx(best, rel=0, abs=bound)
    assert f"| {kind} | {np.mean(list(figures.values())):.4f} |\n" in PAGE.read_text(encoding="utf-8")


def test_the_page_has_no_other_kind() -> None:
    assert set(re.findall(r"^\| ([^|]+) \| \d\.", PAGE.read_text(encoding="utf-8"), re.M)) == set(KINDS)
