"""What a model may be: the one that is searched is the one that was given, by every door, beside a few lines of numpy.

First twenty-seven kinds of model, each by `eval_kit run`, MTEB's task and numpy: one figure. Then
objects of one's own, what changes between two runs, and what is refused.
"""

import importlib
import json
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file

import eval_kit
from builder import mini
from builder import release as releases
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models import checkpoints
from eval_kit.models.opening import open_retriever, retriever
from eval_kit.models.precision import checked
from eval_kit.models.shown import lines_of
from eval_kit.release import Release, open_release
from eval_kit.release.pool import Pool, pool
from eval_kit.search.encoders import with_suffix
from tests import tiny_checkpoints
from tests.tiny_checkpoints import SIZES, SPECIAL, save_tokenizer, tiny

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
        kind: Any = transformers.BertConfig
        if "Qwen3" in architecture:
            kind, sizes = transformers.Qwen3Config, sizes | {"num_key_value_heads": 1, "head_dim": 16}
        elif "T5" in architecture:
            of_t5 = {"d_model": WIDTH, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
            kind, sizes = transformers.T5Config, of_t5 | {"vocab_size": words}
        elif "Roberta" in architecture:
            kind, sizes = transformers.RobertaConfig, sizes | {"pad_token_id": 0, "max_position_embeddings": 40}
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


def of_architecture(tokenizer: Path, architecture: str) -> Any:
    """With mean pooling; RoBERTa's first position is that after its padding, so a tokenizer without a length errs."""
    model = dense(tokenizer, base=transformer(tokenizer, architecture))
    if architecture == "RobertaModel":
        model.max_seq_length = 39
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
    "dense, T5": partial(of_architecture, architecture="T5EncoderModel"),
    "dense, RoBERTa-like, of as many tokens as positions": partial(of_architecture, architecture="RobertaModel"),
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
    made = KINDS[kind](tokenizer)
    made.save_pretrained(str(tmp_path / "model"), create_model_card=False)
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


def with_adapter(
    small: Pool, tokenizer: Path, candidates: Ranking, folder: Path
) -> tuple[Any, dict[str, Any], Ranking]:
    """An adapter alone, as PEFT saves it, against PEFT's own model, text by text."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    base = transformers.AutoModel.from_pretrained(transformer(tokenizer))
    torch.manual_seed(9)
    config = peft.LoraConfig(target_modules=["query", "value"], task_type="FEATURE_EXTRACTION", init_lora_weights=False)
    adapted = peft.get_peft_model(base, config).eval()
    adapted.save_pretrained(folder / "model")
    reads = transformers.AutoTokenizer.from_pretrained(tokenizer)
    reads.save_pretrained(folder / "model")

    def first_tokens(texts: list[str]) -> Any:
        with torch.no_grad():
            inputs = (reads(text, return_tensors="pt", truncation=True, max_length=128) for text in texts)
            return torch.cat([adapted(**each).last_hidden_state[:, 0] for each in inputs])

    return str(folder / "model"), {"pivots": [], "options": {"pooling": "cls"}}, by_vectors(small, first_tokens)


def int8(small: Pool, tokenizer: Path, candidates: Ranking, folder: Path) -> tuple[Any, dict[str, Any], Ranking]:
    """torch's, in memory; its scale is that of a batch, so texts come one by one."""
    model = torch.ao.quantization.quantize_dynamic(dense(tokenizer), {torch.nn.Linear}, dtype=torch.qint8)
    encode = partial(model.encode, batch_size=1, normalize_embeddings=True)
    return model, {"pivots": [], "options": {"encode_batch": 1}}, by_vectors(small, encode)


def with_end_token(
    small: Pool, tokenizer: Path, candidates: Ranking, folder: Path
) -> tuple[Any, dict[str, Any], Ranking]:
    """A decoder whose tokenizer adds none: the tokens by hand, the last one the end's, whatever the texts' length."""
    transformers = pytest.importorskip("transformers")
    shutil.copytree(transformer(tokenizer, "Qwen3Model"), folder / "model")
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer / "tokenizer.json"), pad_token="[PAD]")
    words.backend_tokenizer.post_processor = None
    words.add_special_tokens({"eos_token": "[SEP]", "unk_token": "[UNK]"})
    words.save_pretrained(folder / "model")
    model = transformers.AutoModel.from_pretrained(folder / "model").eval()

    def last_tokens(texts: list[str]) -> Any:
        with torch.no_grad():
            ids = ([*words(text)["input_ids"][:19], words.eos_token_id] for text in texts)
            return torch.cat([model(input_ids=torch.tensor([each])).last_hidden_state[:, -1] for each in ids])

    options = {"pooling": "lasttoken", "query_length": 20, "passage_length": 20}
    ends = {"query_suffix": "[SEP]", "passage_suffix": "[SEP]"}
    return str(folder / "model"), {"pivots": [], "options": options | ends}, by_vectors(small, last_tokens)


def of_a_run(small: Pool, tokenizer: Path, candidates: Ranking, folder: Path) -> tuple[Any, dict[str, Any], Ranking]:
    """A cross-encoder over the twenty best of a dense model's run."""
    eval_kit.run(dense(tokenizer), small.release, folder, pivots=[], name="first")
    found = of_file(folder / "first.trec")
    best = {
        query: dict(sorted(scores.items(), key=lambda hit: (hit[1], hit[0]))[-20:]) for query, scores in found.items()
    }
    cross(tokenizer).save_pretrained(str(folder / "model"))
    wanted = by_numpy(cross(tokenizer), small, best)
    return str(folder / "model"), {"first": folder / "first.trec", "depth": 20}, wanted


def by_vectors(small: Pool, encode: Callable[[list[str]], Any]) -> Ranking:
    queries, passages = dict(small.queries.iter_rows()), dict(small.passages.iter_rows())
    rows = (encode([*queries.values()]) @ encode([*passages.values()]).T).tolist()
    return {query: dict(zip(passages, row, strict=True)) for query, row in zip(queries, rows, strict=True)}


OPENED: dict[str, Callable[..., tuple[Any, dict[str, Any], Ranking]]] = {
    "dense, adapter alone (PEFT)": with_adapter,
    "dense, 8 bits (torch)": int8,
    "dense, decoder, end token as a suffix": with_end_token,
    "cross-encoder, re-ranking a run": of_a_run,
}


@pytest.mark.parametrize("kind", OPENED)
def test_what_no_other_door_opens_has_the_figure_of_a_few_lines_of_torch(
    kind: str, small: Pool, tokenizer: Path, candidates: Ranking, tmp_path: Path
) -> None:
    model, how, wanted = OPENED[kind](small, tokenizer, candidates, tmp_path)
    card = eval_kit.run(model, small.release, tmp_path, name="mine", **how)
    found, figures = of_file(tmp_path / "mine.trec"), reciprocal_ranks(wanted, small)
    assert any(figures.values())
    assert reciprocal_ranks(found, small) == pytest.approx(figures, abs=1e-5)
    for query, scores in found.items():
        for passage, score in scores.items():
            assert score == pytest.approx(wanted[query][passage], rel=1e-4, abs=1e-4)
    if "first" in how:
        assert set(card.to_polars()["system"]) == {"first", "mine"}
        assert all(len(scores) == how["depth"] for scores in found.values())


def test_the_page_counts_the_kinds() -> None:
    assert f"for {len(KINDS)} kinds of model" in PAGE.read_text(encoding="utf-8")


PASSAGES = tiny_checkpoints.passages(60)
QUERIES = tiny_checkpoints.texts(8, 1, longest=8)


def hits(name: str, folder: Path, options: dict[str, Any] | None = None, **how: Any) -> dict[str, dict[str, float]]:
    """What a search of the passages finds, by query."""
    retriever, _ = open_retriever(name, options, **how)
    retriever.index(PASSAGES, folder)
    queries = pl.DataFrame({"query_id": [f"q{row}" for row in range(len(QUERIES))], "text": QUERIES})
    return {query: dict(found) for query, found in retriever.search(queries, folder, 60)}


def agree(found: dict[str, dict[str, float]], scores: Any, tolerance: float = 1e-4) -> None:
    """The same scores, in an order that is right but for ties, of all that the search finds."""
    wanted = np.asarray(scores, np.float64)
    bound = tolerance * np.abs(wanted).max()
    for row, ranked in enumerate(found.values()):
        columns = [int(passage[1:]) for passage in ranked]
        assert len(columns) >= 10
        assert np.allclose(list(ranked.values()), wanted[row, columns], rtol=0, atol=bound)
        assert (np.sort(wanted[row])[::-1][:10] <= wanted[row, columns[:10]] + bound).all()


def own_scores(model: Any) -> Any:
    """By the model's own similarity, of vectors of 32 bits."""
    queries, documents = (
        encode(batch, convert_to_tensor=True).float()
        for encode, batch in ((model.encode_query, QUERIES), (model.encode_document, [text for _, text in PASSAGES]))
    )
    return model.similarity(queries, documents).to_dense()


def saved(folder: Path, *heads: Any, dtype: Any = torch.float32, **how: Any) -> Any:
    """A small dense model, in a folder too."""
    from sentence_transformers import SentenceTransformer

    modules = {"modules": [*SentenceTransformer(str(tiny("dense"))), *heads]}
    model = SentenceTransformer(**modules, **how).to(dtype)
    model.save(str(folder), create_model_card=False)
    return model


class Counts:
    """Letters of a text."""

    scale: Any = 1.0

    def vectors(self, batch: Any) -> Any:
        return np.array([[text.count(letter) for letter in "abcdefghiklmnoprstuvwxyz"] for text in batch]) * self.scale


class Plain(Counts):
    def encode(self, batch: Any) -> Any:
        return self.vectors(batch)


OBJECT = Plain()


class Cosine(Plain):
    similarity_fn_name = "cosine"


class Near(Plain):
    similarity_fn_name = "euclidean"


class Tensors(Counts):
    def encode(self, batch: Any) -> Any:
        return torch.nn.Parameter(torch.from_numpy(self.vectors(batch))).bfloat16()


class Packed(Counts):
    def encode(self, batch: Any) -> Any:
        return np.packbits(self.vectors(batch) > 1, axis=1)


OBJECTS = (Plain, Cosine, Near, Tensors, Packed)


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_of_any_make_are_searched_by_the_similarity_that_they_declare(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts()
    queries, documents = counts.vectors(QUERIES), counts.vectors([text for _, text in PASSAGES])
    scores = queries @ documents.T
    if kind is Cosine:
        scores = scores / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(documents, axis=1)
    elif kind is Near:
        scores = -np.linalg.norm(queries[:, None] - documents[None], axis=2)
    elif kind is Packed:
        scores = 24.0 - 2 * ((queries > 1)[:, None] != (documents > 1)[None]).sum(2)
    agree(hits("mine", tmp_path / "index", loaded=kind()), scores)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_arithmetic_has_the_precision_that_was_asked(stored: torch.dtype, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    saved(tmp_path / "model", dtype=stored)
    model = SentenceTransformer(str(tmp_path / "model")).float()
    found = hits(str(tmp_path / "model"), tmp_path / "index", {"encode_precision": "float32"})
    agree(found, own_scores(model), 1e-5)
    with pytest.warns(UserWarning, match=str(stored).removeprefix("torch.")):
        hits(str(tmp_path / "model"), tmp_path / "other")


def overflowing(folder: Path) -> str:
    """A transformer whose activations pass what 16 bits hold, stored in 16 bits."""
    from transformers import AutoModel

    shutil.copytree(tiny("bert"), folder)
    model = AutoModel.from_pretrained(folder)
    for layer in model.encoder.layer:
        for one in (layer.intermediate.dense, layer.output.dense):
            one.weight.data.mul_(3_000)
    model.half().save_pretrained(folder)
    return str(folder)


def test_float32_is_taken_where_16_bits_change_what_is_found(tmp_path: Path) -> None:
    texts = [text for _, text in PASSAGES[:16]]
    model = overflowing(tmp_path / "model")
    for options, precision in (({}, "float32"), ({"encode_precision": "float16"}, "float16")):
        opened, _ = open_retriever(model, {"pooling": "mean"} | options)
        with pytest.warns(UserWarning, match="float16"):
            taken: Any = checked(opened, QUERIES, texts)[0]
        assert taken.dtype == precision
    for name in ("dense", "sparse", "multivector", "cross"):
        healthy = retriever(name, tiny(name), {"encode_precision": "float16"})
        assert checked(healthy, QUERIES, texts)[0] is healthy


def test_16_bits_that_only_move_what_is_found_are_said(tokenizer: Path) -> None:
    """T5 in memory, whose weights were all cast: transformers then clamps what passes 16 bits."""
    model = dense(tokenizer, base=transformer(tokenizer, "T5EncoderModel"))
    for block in model[0].model.encoder.block:
        block.layer[1].DenseReluDense.wi.weight.data.mul_(3_000)
        block.layer[1].DenseReluDense.wo.weight.data.mul_(3_000)
    given = retriever("dense", "mine", {}, model.half())
    with pytest.warns(UserWarning, match="swap"):
        assert checked(given, QUERIES, [text for _, text in PASSAGES[:16]])[0] is given


def test_weights_that_transformers_keeps_in_32_bits_stay_so(tokenizer: Path) -> None:
    made = retriever(
        "dense", transformer(tokenizer, "T5EncoderModel"), {"pooling": "mean", "encode_precision": "float16"}
    )
    weights = dict(made._model.named_parameters())  # type: ignore[attr-defined]
    assert {str(one.dtype) for name, one in weights.items() if ".wo." in name} == {"torch.float32"}
    assert made.dtype == "float16"  # type: ignore[attr-defined]


def test_pooling_changes_the_pooling_of_a_saved_model_alone(tokenizer: Path, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense, Normalize

    heads = [Dense(WIDTH, 12), Normalize()]
    how: dict[str, Any] = {"prompts": {"query": "alpha "}, "similarity_fn_name": "cosine"}
    dense(tokenizer, *heads, **how).save_pretrained(str(tmp_path / "mean"))
    wanted = own_scores(dense(tokenizer, *heads, pooling="cls", **how))
    with pytest.warns(UserWarning, match="mean"):
        agree(hits(str(tmp_path / "mean"), tmp_path / "index", {"pooling": "cls"}), wanted)
    words(tokenizer).save_pretrained(str(tmp_path / "words"))
    with pytest.raises(UserError, match="pooling"):
        hits(str(tmp_path / "words"), tmp_path / "other", {"pooling": "cls"})


def test_a_second_encoder_is_read_beside_a_model_in_memory_and_by_sparse_models(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer, SparseEncoder

    texts = [text for _, text in PASSAGES]
    for made, name in ((SentenceTransformer, "dense"), (SparseEncoder, "sparse")):
        other = made(str(tiny(name)))
        for weights in other.parameters():
            weights.data = weights.data.flip(0)
        other.save_pretrained(str(tmp_path / name))
        passages = made(str(tiny(name)))
        wanted = passages.similarity(other.encode_query(QUERIES), passages.encode_document(texts)).to_dense()
        for given in ({}, {"loaded": passages}):
            found = hits(
                str(tiny(name)), tmp_path / f"{name}{len(given)}", {"query_model": str(tmp_path / name)}, **given
            )
            agree(found, wanted)


@pytest.mark.parametrize("name", ["dense", "sparse", "multivector", "cross"])
def test_texts_of_every_kind_may_have_something_before_and_after_them(name: str, tmp_path: Path) -> None:
    given = {"query_prompt": "psi ", "query_suffix": " chi", "passage_prompt": "rho ", "passage_suffix": " tau"}
    made, plain = retriever(name, tiny(name), given), retriever(name, tiny(name), {})
    long = " ".join(["sigma"] * 200)
    kept = " ".join(["sigma"] * (128 - (8 if name == "cross" else 4)))  # special tokens, and those put before and after
    query, passages = ["alpha"], ["beta gamma", long]
    by_hand = ["rho beta gamma tau", f"rho {kept} tau"]
    if name == "cross":
        found = [made.scores([(query[0], text) for text in passages])]  # type: ignore[attr-defined]
        wanted = [plain.scores([("psi alpha chi", text) for text in by_hand])]  # type: ignore[attr-defined]
    else:
        found = [made.encode_queries(query), made.encode_passages(passages)]  # type: ignore[attr-defined]
        wanted = [plain.encode_queries(["psi alpha chi"]), plain.encode_passages(by_hand)]  # type: ignore[attr-defined]
    for one, other in zip(map(numbers_of, found), map(numbers_of, wanted), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def numbers_of(encoded: Any) -> Any:
    if isinstance(encoded, dict):
        return np.concatenate([np.ravel(part) for part in encoded.values()])
    return np.ravel(encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded))


def test_truncated_token_vectors_are_units_again(tmp_path: Path) -> None:
    made: Any = retriever("multivector", tiny("multivector"), {"truncate_dim": 8})
    whole: Any = retriever("multivector", tiny("multivector"), {})
    kept = whole.encode_passages(["alpha beta"])["tokens"][:, :8]
    wanted = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    np.testing.assert_allclose(made.encode_passages(["alpha beta"])["tokens"], wanted, atol=1e-6)


def test_word_vectors_of_model2vec_need_no_modules_file(tokenizer: Path, tmp_path: Path) -> None:
    model = words(tokenizer)
    model.save_pretrained(str(tmp_path))
    weights = {"embeddings": model[0].embedding.weight.data}
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != "tokenizer.json":
            file.unlink()
    save_file(weights, tmp_path / "model.safetensors")
    for config in ({"architectures": ["StaticModel"]}, {"normalize": False}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        agree(hits(str(tmp_path), tmp_path / f"index{len(str(config))}"), own_scores(model))


def test_a_text_longer_than_the_positions_is_cut_there_or_said(tokenizer: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = transformer(tokenizer, "RobertaModel")
    long = [" ".join(["alpha"] * 100)]
    found = []
    for options in ({}, {"passage_length": 39}):
        with pytest.warns(UserWarning, match="39 tokens"):
            found.append(retriever("dense", folder, {"pooling": "mean"} | options).encode_passages(long))  # type: ignore[attr-defined]
    assert (found[0]["vectors"] == found[1]["vectors"]).all()
    with pytest.raises(UserError, match="positions"):
        retriever("dense", "mine", {}, SentenceTransformer(folder)).encode_passages(long)  # type: ignore[attr-defined]


def test_what_will_run_is_shown_and_nothing_is_written(
    trainable_release: Release, tokenizer: Path, tmp_path: Path
) -> None:
    search = partial(eval_kit.run, release=trainable_release, out=tmp_path / "runs", test_sets=["dl19"])
    options = {"pooling": "lasttoken", "query_prompt": r"Instruct:\nQuery: "}
    with pytest.warns(UserWarning) as warned:
        lines = search(transformer(tokenizer, "Qwen3Model"), options=options, check=True).lines
    assert any("query_prompt" in str(each.message) for each in warned)
    assert list(lines) == ["model", "texts", "precision", "query", "passage"]
    assert "Qwen3Model" in lines["model"] and "lasttoken" in lines["model"]
    assert r"Instruct:\\nQuery: " in lines["texts"] and "float32" in lines["precision"]
    assert not (tmp_path / "runs").exists()
    card = search(str(tiny("dense")), limit=50, name="mine")
    assert card.as_json()["shown"]["model"].startswith("dense: BertModel")
    assert "system" not in card.to_polars().columns  # beside no other
    assert [file.name for file in (tmp_path / "runs").glob("*.trec")] == ["mine-first-50.trec"]
    assert (
        len({passage for scores in of_file(tmp_path / "runs/mine-first-50.trec").values() for passage in scores}) <= 50
    )
    for refused in ({"first": tmp_path / "runs/mine-first-50.trec"}, {"limit": 5, "pivots": [tmp_path]}):
        with pytest.raises(UserError, match=r"first|limit"):
            search(str(tiny("dense")), name="other", **refused)


def test_lengths_and_dimensions_are_options(tokenizer: Path, tmp_path: Path) -> None:
    of_two(tokenizer).save(str(tmp_path / "router"))
    whole = hits(str(tmp_path / "router"), tmp_path / "index")
    assert hits(str(tmp_path / "router"), tmp_path / "index", {"query_length": 4}) != whole
    saved(tmp_path / "model")
    model = saved(tmp_path / "short", truncate_dim=8)
    agree(hits(str(tmp_path / "model"), tmp_path / "truncated", {"truncate_dim": 8}), own_scores(model))
    longest = retriever("dense", tiny("dense"), {"passage_length": 128})  # as many tokens as there are positions
    assert longest.encode_passages(["alpha"])["vectors"].shape == (1, 32)  # type: ignore[attr-defined]


def test_prefixes_that_only_a_card_tells_are_those_of_mteb(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("mteb")
    model = saved(tmp_path / "model")
    name = "intfloat/e5-small-v2"
    monkeypatch.setattr(checkpoint, "kind", lambda *_: "dense")
    monkeypatch.setattr(checkpoint, "card", lambda *_: None)
    monkeypatch.setattr(checkpoint, "digest", lambda *_: "weights")
    monkeypatch.setattr(checkpoint, "_json", lambda *_: {})
    monkeypatch.setattr(checkpoint, "open_model", lambda *_, **how: saved(tmp_path / "copy"))
    bare = hits(name, tmp_path / "index", {"query_prompt": "", "passage_prompt": ""})
    agree(bare, own_scores(model))
    with pytest.warns(UserWarning, match="registry"):
        found = hits(name, tmp_path / "index")
    model.prompts = {"query": "query: ", "document": "passage: "}
    agree(found, own_scores(model))
    assert found != bare
    monkeypatch.setattr(checkpoints, "_registered", lambda _: None)  # mteb is not there
    with pytest.warns(UserWarning, match="query_prompt"):
        assert hits(name, tmp_path / "index") == bare


def of_json(name: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        [file] = folder.glob(name)
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return change


def of_weights(name: str, dtype: Any = None) -> Callable[[Path], None]:
    from safetensors.torch import load_file

    def change(folder: Path) -> None:
        [file] = folder.glob(name)
        weights = {key: tensor.to(dtype) if dtype else tensor.flip(0) for key, tensor in load_file(file).items()}
        save_file(weights, file, {"format": "pt"})

    return change


CHANGES: dict[str, Callable[[Path], None] | dict[str, Any]] = {
    "weights": of_weights("model.safetensors"),
    "head": of_weights("2_Dense/model.safetensors"),
    "stored precision": of_weights("model.safetensors", torch.bfloat16),
    "length": of_json("sentence_bert_config.json", max_seq_length=5),
    "pooling": of_json("1_Pooling/config.json", pooling_mode="cls"),
    "similarity": of_json("config_sentence_transformers.json", similarity_fn_name="euclidean"),
    "prompt of queries": of_json("config_sentence_transformers.json", prompts={"query": "alpha beta "}),
    "prompt of passages": of_json("config_sentence_transformers.json", prompts={"document": "alpha beta "}),
    "dimensions": of_json("config_sentence_transformers.json", truncate_dim=4),
    "linked pooling": lambda folder: of_json("config.json", pooling_mode="cls")(folder.parent / "linked"),
    "option precision": {"encode_precision": "bfloat16"},
    "option length": {"passage_length": 4},
    "option prompt": {"passage_prompt": "psi "},
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_in_place_or_by_an_option_changes_the_next_run(what: str, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(1)
    model, change = tmp_path / "model", CHANGES[what]
    saved(model, Dense(32, 12))
    if what.startswith("linked"):
        shutil.move(model / "1_Pooling", tmp_path / "linked")
        (model / "1_Pooling").symlink_to(tmp_path / "linked", target_is_directory=True)
    before = hits(str(model), tmp_path / "index")
    options = change if isinstance(change, dict) else None
    if not isinstance(change, dict):
        change(model)
    after = hits(str(model), tmp_path / "index", options)
    assert after == hits(str(model), tmp_path / "fresh", options) != before


def test_passages_code_and_an_objects_state_that_change_change_the_next_run(tmp_path: Path, monkeypatch: Any) -> None:
    before = hits("mine", tmp_path / "object", loaded=OBJECT)
    monkeypatch.setattr(sys.modules[__name__], "PASSAGES", [*PASSAGES[:-1], (PASSAGES[-1][0], "omega")])
    changed = hits("mine", tmp_path / "object", loaded=OBJECT)
    assert changed == hits("mine", tmp_path / "fresh", loaded=OBJECT) != before
    monkeypatch.setattr(OBJECT, "scale", np.arange(24.0, 0.0, -1.0))  # which no list of files shows
    with pytest.warns(UserWarning, match="again"):
        assert hits("mine", tmp_path / "object", loaded=OBJECT) != changed

    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for folder, word in (("one", "alpha"), ("one", "beta"), ("two", "beta")):
        encode = f"lambda _, texts: numpy.array([[text.count('{word}'), 1] for text in texts])"
        code = f"import numpy\nclass Mine:\n    encode = {encode}\nmine = Mine()\n"
        (tmp_path / "its_code.py").write_text(code)
        sys.modules.pop("its_code", None)
        importlib.invalidate_caches()
        found.append(hits("its_code:mine", tmp_path / folder))
    assert found[1] == found[2] != found[0]


FILES = {
    "a generative model of text to text": ("config.json", {"architectures": ["T5ForConditionalGeneration"]}, "seq2seq"),
    "a generative model": ("config.json", {"architectures": ["Qwen3ForCausalLM"]}, "causal"),
    "a classifier": ("config.json", {"architectures": ["BertForSequenceClassification"]}, "cross"),
    "pylate's": ("modules.json", [{"type": "pylate.models.Dense.Dense"}], "multivector"),
    "an older dense model": ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "dense"),
    **{
        f"architectures {value}": ("config.json", {"architectures": value, "x": 1}, "transformer")
        for value in ([5], [None], {"BertModel": 1}, "BertModel", [])
    },
}


@pytest.mark.parametrize("what", FILES)
def test_what_a_model_is_stands_in_its_files(what: str, tmp_path: Path) -> None:
    name, content, kind = FILES[what]
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": ["SparseEncoder"]}')
    (tmp_path / name).write_text(json.dumps(content))
    assert checkpoint.kind(str(tmp_path)) == kind


REFUSED = [
    *(("bm25", {"k1": k1}, "k1") for k1 in (-1.0, float("nan"), True)),
    ("bm25", {"b": 7}, "k1"),
    *(("dense", {name: 0}, name) for name in ("encode_batch", "query_length", "passage_length")),
    ("dense", {"passage_length": 1_000}, "128 positions"),
    ("dense", {"truncate_dim": 800}, "truncate_dim"),
    ("dense", {"store": "int4"}, "int4"),
    ("dense", {"encode_precision": "int4"}, "int4"),
    ("dense", {"similarity": "hamming"}, "hamming"),
    ("cross", {"pair_length": 129}, "129 tokens"),
    ("cross", {"candidates": 0}, "candidates"),
    ("multivector", {"engine": "plaidd"}, "plaidd"),
    ("classes", {}, "3 scores"),
    ("bert", {}, "pooling"),
    ("bert", {"pooling": "foo"}, "foo"),
]


@pytest.mark.parametrize(("name", "options", "place"), REFUSED)
def test_what_is_refused_before_anything_is_searched(name: str, options: dict[str, Any], place: str) -> None:
    with pytest.raises(UserError, match=place):
        made: Any = open_retriever(name if name == "bm25" else str(tiny(name)), options)[0]
        _ = made._model if name == "cross" else made.encode_passages(["a"])


def half_copied(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(tiny(name), folder)
        (folder / "modules.json").unlink()
        return folder

    return make


def undeclared(folder: Path) -> Path:
    """A dense model as an older sentence-transformers saved it."""
    shutil.copytree(tiny("dense"), folder)
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"__version__": json.loads(settings.read_text())["__version__"]}))
    return folder


def with_a_pooler(folder: Path, pooler: bool = False) -> Path:
    """A re-ranker whose score goes through the pooler."""
    import transformers

    kind = transformers.DebertaV2ForSequenceClassification
    words = len((tiny("bert") / "vocab.txt").read_text().splitlines())
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "pooler_hidden_size": WIDTH, "num_labels": 1, **SIZES}
    model = kind(transformers.DebertaV2Config(vocab_size=words, **sizes))  # type: ignore[arg-type]
    weights = {name: one for name, one in model.state_dict().items() if pooler or not name.startswith("pooler.")}
    shutil.copytree(tiny("bert"), folder)
    model.save_pretrained(folder, state_dict=weights)
    return folder


def pooled_by_the_transformer(folder: Path) -> Path:
    """An encoder whose vector is the pooler's, which its files lack."""
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer

    pooled = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    transformer = Transformer(str(tiny("bert")), modality_config=pooled, module_output_name="sentence_embedding")
    SentenceTransformer(modules=[transformer]).save_pretrained(str(folder))
    weights = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in weights.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    return folder


DRAWN = {
    "late interaction of a dense model": (undeclared, "late", "dense encoder"),
    "a sparse dense model": (undeclared, "sparse", "dense encoder"),
    **{f"half of {name}": (half_copied(name), None, "modules.json") for name in ("dense", "sparse", "multivector")},
    "a re-ranker without its pooler": (with_a_pooler, None, "pooler.dense"),
    "an encoder without its pooler": (pooled_by_the_transformer, None, "pooler.dense"),
}


@pytest.mark.parametrize("what", DRAWN)
def test_what_the_library_would_draw_or_guess_is_refused(what: str, tmp_path: Path) -> None:
    make, kind, place = DRAWN[what]
    with pytest.raises(UserError, match=place):
        _ = open_retriever(str(make(tmp_path / "model")), kind=kind)[0]._model  # type: ignore[attr-defined]


@pytest.mark.parametrize("library_class", ["MultiVectorEncoder", "SparseEncoder"])
def test_a_module_that_is_in_no_file_is_refused_by_its_name(library_class: str) -> None:
    with pytest.raises(UserError, match=r"lack the module (Dense|SparseAutoEncoder)"):
        checkpoint.open_model(str(tiny("bert")), library_class)


def test_a_pooler_counts_for_those_whose_score_goes_through_it(tmp_path: Path) -> None:
    whole = open_retriever(str(with_a_pooler(tmp_path / "whole", pooler=True)))[0]
    assert len(whole.scores([("alpha", "beta")])) == 1  # type: ignore[attr-defined]


def test_where_a_thing_comes_from_is_in_the_line(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(name: str | Path, about: str = "model", **options: Any) -> str:
        return lines_of(open_retriever(str(name), options)[0], "alpha", "beta", remark="")[about]

    model = undeclared(tmp_path / "old")
    with pytest.warns(UserWarning, match="similarity=dot"):
        assert line(model).endswith("cosine (not declared)")
    assert line(model, similarity="dot").endswith("; dot") and line(tiny("dense")).endswith("; cosine")
    assert line(model, "texts").endswith("no prompts")
    assert "no prompts" not in line(model, "texts", query_prompt="alpha ")
    assert "no template" in line(transformer(tokenizer, "Qwen3ForCausalLM"), "texts")
    assert "(max, its own)" in line(tiny("sparse"))
    assert "(max, made by the library)" in line(tiny("masked"))
    with monkeypatch.context() as patch:
        dot = SimpleNamespace(similarity_fn_name=SimpleNamespace(value="dot"))
        patch.setattr(checkpoints, "_registered", lambda _: dot)
        assert line(model).endswith("dot (mteb's registry)") and line(tiny("dense")).endswith("; cosine")
    settings = model / "config_sentence_transformers.json"
    future = {"__version__": {"sentence_transformers": "99.0"}, "prompts": {"x": "psi "}, "default_prompt_name": "x"}
    settings.write_text(json.dumps(future))
    said = line(model, "sentence-transformers")
    assert "99.0" in said and "Default prompt name" in said


def test_an_instruction_is_left_out_of_the_mean(tokenizer: Path, tmp_path: Path) -> None:
    model = dense(tokenizer, prompts={"query": "alpha beta ", "document": "psi "}, similarity_fn_name="dot")
    whole = own_scores(model)
    for name in ("instructor-tiny", "renamed"):
        model.save_pretrained(str(tmp_path / name))
    model.set_pooling_include_prompt(False)
    agree(hits(str(tmp_path / "instructor-tiny"), tmp_path / "one"), own_scores(model))
    agree(hits(str(tmp_path / "renamed"), tmp_path / "two", {"include_prompt": False}), own_scores(model))
    agree(hits(str(tmp_path / "renamed"), tmp_path / "three"), whole)
    agree(hits(str(tmp_path / "instructor-tiny"), tmp_path / "four", {"include_prompt": True}), whole)


@pytest.mark.parametrize("architecture", ["Qwen3Model", "Qwen3ForSequenceClassification"])
def test_a_tokenizer_without_a_padding_token_is_given_one(architecture: str, tokenizer: Path, tmp_path: Path) -> None:
    import transformers

    config = {"num_labels": 1, "pad_token_id": 0} if "Classification" in architecture else {}
    whole, model = Path(transformer(tokenizer, architecture, **config)), tmp_path / "padless"
    shutil.copytree(whole, model)
    padless = transformers.AutoTokenizer.from_pretrained(whole)
    padless.pad_token = None
    padless.save_pretrained(model)
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**settings, "pad_token_id": None}))
    texts = ["alpha", "alpha beta yes no alpha beta"]
    options = {} if config else {"pooling": "lasttoken"}
    opened = [open_retriever(str(folder), options)[0] for folder in (whole, model)]
    if config:
        pairs = [("beta", text) for text in texts]
        found = [one.scores(pairs) for one in opened]  # type: ignore[attr-defined]
    else:
        found = [one.encode_passages(texts)["vectors"] for one in opened]  # type: ignore[attr-defined]
    assert np.allclose(*found, atol=1e-5)


def test_one_label_of_two_scores_as_pygaggle_has_it(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    pairs = [("alpha", text) for _, text in PASSAGES]
    logits = torch.tensor(CrossEncoder(str(tiny("classes"))).predict(pairs, activation_fn=torch.nn.Identity()))
    model: Any = open_retriever(str(tiny("classes")), {"label": 1})[0]
    assert np.allclose(model.scores(pairs), torch.log_softmax(logits, 1)[:, 1], atol=1e-5)
    for label in (3, -1):
        with pytest.raises(UserError, match="3 scores"):
            open_retriever(str(tiny("classes")), {"label": label})


def test_a_suffix_is_kept_by_tokenizers_in_python(tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer

    tokenizer = ByT5Tokenizer()
    for text in ("alpha " * 40, "äöü€" * 40, "a"):
        [cut] = with_suffix([text], " !", tokenizer, 32, before="q: ")
        length = len(tokenizer("q: " + cut)["input_ids"])
        assert cut.endswith(" !") and length <= 32
        assert length > 24 or cut == text + " !"


def test_negative_weights_cut_no_passage_off(tokenizer: Path, tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    model = SparseEncoder(str(tiny("sparse")))
    torch.manual_seed(1)
    weights = torch.randn(len(model.tokenizer))
    queries = SparseStaticEmbedding(tokenizer=model.tokenizer, weight=weights, frozen=True)
    model = SparseEncoder(modules=[Router.for_query_document([queries], [*model])], similarity_fn_name="dot")
    model.save_pretrained(str(tmp_path / "model"))
    found = hits(str(tmp_path / "model"), tmp_path / "index")
    assert {len(passages) for passages in found.values()} == {60}
    agree(found, own_scores(model))


def test_an_adapter_of_itself_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path)}))
    with pytest.raises(UserError, match="itself"):
        open_retriever(str(tmp_path))


def test_a_model_that_is_another_one_when_it_is_opened_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever draws it, and at every door of the library."""
    texts = [text for _, text in PASSAGES][:16]
    whole = checkpoint.open_model

    def drawn(*names: str, **how: Any) -> Any:
        model = whole(*names, **how)
        for weights in [*model.parameters()][-4:]:
            weights.data.normal_()
        return model

    for name in ("dense", "sparse", "multivector", "cross"):
        assert checked(open_retriever(str(tiny(name)))[0], texts, texts)[1] == ""
        with monkeypatch.context() as patch, pytest.raises(UserError, match="whenever it is opened"):
            patch.setattr(checkpoint, "open_model", drawn)
            checked(open_retriever(str(tiny(name)))[0], texts, texts)


def test_a_text_that_depends_on_those_beside_it_is_said(tokenizer: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import CNN, Pooling, Transformer

    torch.manual_seed(1)
    modules = [Transformer(transformer(tokenizer)), CNN(WIDTH, WIDTH), Pooling(3 * WIDTH)]
    SentenceTransformer(modules=modules).save_pretrained(str(tmp_path / "cnn"))
    texts = sorted((text for _, text in PASSAGES), key=len)[::4]
    with pytest.warns(UserWarning, match="depend on the batch"):
        checked(open_retriever(str(tmp_path / "cnn"))[0], QUERIES, texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(open_retriever(str(tiny("dense")))[0], QUERIES, texts)


def test_a_kind_is_what_the_user_says(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')  # for each token
    assert open_retriever(str(tmp_path), kind="late")[0].__class__.__name__ == "MultiVector"
    with pytest.raises(UserError, match="kind"):
        open_retriever(str(tmp_path), kind="colbert")


def test_runs_of_folders_of_one_name_are_told_apart_and_none_replaces_anothers(
    trainable_release: Release, tmp_path: Path
) -> None:
    search = partial(eval_kit.run, release=trainable_release, out=tmp_path / "runs", pivots=[], test_sets=["dl19"])
    for parent in ("a", "b"):
        saved(tmp_path / parent / "checkpoint-500")
        search(str(tmp_path / parent / "checkpoint-500"))
    assert {file.stem for file in (tmp_path / "runs").glob("*.trec")} == {"a-checkpoint-500", "b-checkpoint-500"}
    first, model = tmp_path / "runs" / "a-checkpoint-500.trec", saved(tmp_path / "other", similarity_fn_name="dot")
    before = first.read_bytes()
    with pytest.raises(UserError, match=r"is a run of .*replace"):
        search(model, name="a-checkpoint-500")
    assert first.read_bytes() == before
    search(model, name="a-checkpoint-500", replace=True)
    assert first.read_bytes() != before


def mteb_scores(model: Any, release: Release) -> Any:
    import mteb

    from eval_kit.integrations.mteb import tasks

    return mteb.evaluate(model, tasks(release, "topic"), cache=None, show_progress_bar=False)


def test_two_scores_a_pair_and_whole_numbers_are_told_at_every_door(trainable_release: Release, tmp_path: Path) -> None:
    pytest.importorskip("mteb")
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from eval_kit.integrations.sentence_transformers import evaluator

    class Quantised(SentenceTransformer):
        kind = "ubinary"

        def encode(self, *texts: Any, **how: Any) -> Any:
            return super().encode(*texts, **how | {"precision": self.kind, "convert_to_tensor": False})

    many, bits = CrossEncoder(str(tiny("classes"))), Quantised(str(tiny("dense")))
    queries = trainable_release.test_sets["topic.c0"].queries
    passage = trainable_release.table("passages", "passages")["passage_id"][0]
    candidates = {query: {passage: 1.0} for query in queries}
    search = partial(eval_kit.run, release=trainable_release, pivots=[], test_sets=["topic.c0"])
    for refused in (
        lambda: search(many, out=tmp_path),
        lambda: evaluator(many, trainable_release, "topic", candidates),
        lambda: mteb_scores(many, trainable_release),
    ):
        with pytest.raises(UserError, match="3 scores"):
            refused()
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]
    for bits.kind, said in (("ubinary", "Hamming"), ("binary", "numbers"), ("int8", "numbers")):
        with pytest.warns(UserWarning, match=said):
            search(bits, out=tmp_path / bits.kind)
        with pytest.raises(UserError, match="int8"):
            mteb_scores(bits, trainable_release)


def test_a_second_release_in_the_same_folder_is_searched_in_its_own_passages(tmp_path: Path) -> None:
    found = {}
    for out in ("shared", "shared", "fresh"):
        seed = len(found) and 5
        folder = tmp_path / f"release{seed}"
        if not folder.exists():
            releases.write(mini.draft(seed=seed, queries=500), folder)
        card = eval_kit.run("bm25", folder, tmp_path / out, test_sets=["dl19"])
        found[out, seed] = card.to_polars()["value"].to_list()
    assert found["shared", 5] == found["fresh", 5] != found["shared", 0]


def test_a_test_set_that_is_named_is_the_only_one_beside_a_pivot_too(mini_release: Release, tmp_path: Path) -> None:
    search = partial(eval_kit.run, "bm25", mini_release, test_sets=["dev"])
    card = search(out=tmp_path)
    beside = search(out=tmp_path / "other", pivots=[tmp_path / "bm25.trec"], name="other", options={"k1": 1.2})
    assert set(beside.to_polars()["test_set"]) == set(card.to_polars()["test_set"]) == {"dev"}


def test_an_output_in_the_models_folder_is_refused(mini_release: Release, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tiny("dense"), target_is_directory=True)
    with pytest.raises(UserError, match="runs"):
        eval_kit.run(str(tmp_path / "model"), mini_release, tmp_path / "model" / "runs")
