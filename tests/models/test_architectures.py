"""Every checkpoint of CIKM 2022's Tables 8 and 9 and of BEIR's Table 6, as a small model of its architecture and files.

The architectures, heads and names of files are those of the repositories on the Hub; the weights are random. What the
tables train is trained a step; everything is searched.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Pooling, Transformer

from baselines import config
from baselines.cell import Cell
from baselines.grid.work import attempt
from eval_kit.models import checkpoints
from eval_kit.models.opening import open_retriever
from eval_kit.release import Release
from eval_kit.runs.names import RunName
from tests.tiny_checkpoints import SIZES, WORDS, passages, save_tokenizer

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, **SIZES}
BEIR = [name for name, entry in checkpoints.load().items() if any("beir2021" in row["table"] for row in entry.rows)]
TABLES = config.read("cikm2022-tables8-9").systems


def bert(folder: Path, kind: str = "BertForMaskedLM", old: bool = False, **options: Any) -> Path:
    """A transformer of BERT's vocabulary; ``old`` files are pickled weights."""
    save_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"[]qd"], folder)
    model = getattr(transformers, kind)
    model = model(model.config_class(**{**SMALL, "vocab_size": 5 + len(WORDS) + 4, **options}))
    model.save_pretrained(folder)
    if old:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def condenser(folder: Path) -> Path:
    """A masked language model beside its head of two layers and the arguments of its training."""
    bert(folder, old=True)
    torch.save({"c_head.0.attention.self.query.weight": torch.zeros(32, 32)}, folder / "model.pt")
    torch.save({"arguments": "of a training"}, folder / "training_args.bin")
    return folder


def distilbert(folder: Path) -> Path:
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 128}
    save_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], folder)
    model = transformers.DistilBertModel(transformers.DistilBertConfig(vocab_size=5 + len(WORDS), **sizes))
    model.save_pretrained(folder)
    return folder


def roberta(folder: Path, kind: str = "RobertaForMaskedLM") -> Path:
    """Of byte pairs, with positions that begin at 2."""
    folder.mkdir(parents=True)
    letters = [*map(chr, range(33, 127)), "Ġ"]
    vocabulary = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters, "<mask>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    transformers.RobertaTokenizerFast(vocab=vocabulary, merges=[], model_max_length=128).save_pretrained(folder)
    sizes = {**SMALL, "vocab_size": len(vocabulary), "max_position_embeddings": 130, "type_vocab_size": 1}
    getattr(transformers, kind)(transformers.RobertaConfig(**sizes)).save_pretrained(folder)
    return folder


def wrapped(bare: Path, *modules: Any) -> Path:
    """A model of sentence-transformers: the transformer and these modules."""
    folder = bare.with_name(f"{bare.name}-st")
    SentenceTransformer(modules=[Transformer(str(bare)), *modules]).save(str(folder))
    return folder


def colbert(folder: Path) -> Path:
    """ColBERT's own layout: a projection beside BERT, ``HF_ColBERT``, ``artifact.metadata``."""
    bert(folder, "BertModel")
    model = transformers.BertModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    weights = {f"bert.{name}": value for name, value in model.state_dict().items()}
    torch.save({**weights, "linear.weight": torch.randn(16, 32)}, folder / "pytorch_model.bin")
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"architectures": ["HF_ColBERT"]}))
    facts = {"query_token_id": "[q]", "doc_token_id": "[d]", "dim": 16, "doc_maxlen": 32, "query_maxlen": 16}
    (folder / "artifact.metadata").write_text(
        json.dumps(facts | {"attend_to_mask_tokens": False, "similarity": "cosine"})
    )
    return folder


SHAPES: dict[str, Callable[[Path], Path]] = {
    "google-bert/bert-base-uncased": bert,
    "FacebookAI/roberta-base": roberta,
    "nghuyong/ernie-2.0-base-en": lambda folder: bert(folder, "ErnieModel", old=True, task_type_vocab_size=3),
    "Luyu/condenser": condenser,
    "Luyu/co-condenser-wiki": lambda folder: bert(folder, old=True),
    "Luyu/co-condenser-marco": lambda folder: bert(folder, old=True),
    "colbert-ir/colbertv2.0": colbert,
    "sentence-transformers/facebook-dpr-ctx_encoder-multiset-base": lambda folder: wrapped(
        bert(folder, "BertModel"), Pooling(32, "cls")
    ),
    "sentence-transformers/facebook-dpr-question_encoder-multiset-base": lambda folder: wrapped(
        bert(folder, "BertModel"), Pooling(32, "cls")
    ),
    "sentence-transformers/msmarco-roberta-base-ance-firstp": lambda folder: wrapped(
        roberta(folder, "RobertaModel"),
        Pooling(32, "mean"),
        Dense(32, 32, activation_function=torch.nn.Identity()),
        LayerNorm(32),
    ),
    "sentence-transformers/msmarco-distilbert-base-tas-b": lambda folder: wrapped(
        distilbert(folder), Pooling(32, "cls")
    ),
    "cross-encoder/ms-marco-MiniLM-L6-v2": lambda folder: bert(folder, "BertForSequenceClassification", num_labels=1),
}


def test_every_checkpoint_has_its_shape() -> None:
    of_tables = {name for each in TABLES.values() for name in (each.backbone, each.teacher) if name}
    of_beir = {checkpoints.load()[name].model for name in BEIR}
    of_beir |= {str(checkpoints.load()[name].options["query_model"]) for name in BEIR if name == "dpr"}
    assert of_tables | of_beir == set(SHAPES)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if "cocondenser" in name else [])  # Condenser's shape
        for name in TABLES
        if name != "biencoder-adore"
    ],
)
def test_a_backbone_of_that_shape_trains_a_step_and_searches(
    name: str, trainable_release: Release, tmp_path: Path
) -> None:
    """ADORE, which starts from another system, has its own test."""
    own = TABLES[name].as_json()
    for role in ("backbone", "teacher"):
        if role in own:
            own[role] = str(SHAPES[own[role]](tmp_path / role))
    own = {key: value for key, value in own.items() if key not in ("epochs", "mine_every", "static_negatives")}
    own |= {"steps": 1, "batch_size": 4, "negatives": 1, "query_length": 16, "passage_length": 32, "depth": 10}
    own |= {"steps": 2, "mine_every": 1, "static_negatives": 1} if name == "biencoder-star" else {}
    options = config.parse({"systems": {name: own | {"loader_processes": 0}}}, "test").systems[name]
    cell = Cell(RunName(name, "length", "short"), trainable_release, options, tmp_path / "grid")
    assert attempt(cell) is None
    queries = {line.split()[0] for line in cell.run.read_text().splitlines()}
    assert len(queries) > 100


@pytest.mark.parametrize("name", BEIR)
def test_a_checkpoint_of_that_shape_is_opened_and_searched(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = checkpoints.load()[name]
    options = {key: min(value, 128) if key.endswith("_length") else value for key, value in entry.options.items()}
    if "query_model" in options:
        options["query_model"] = str(SHAPES[str(options["query_model"])](tmp_path / "queries"))
    opened, _ = open_retriever(str(SHAPES[entry.model](tmp_path / "model")), options)
    if entry.architecture == "cross":
        pairs = [("alpha", text) for _, text in passages(5)]
        expected = CrossEncoder(str(tmp_path / "model")).predict(pairs, activation_fn=torch.nn.Identity())
        assert opened.scores(pairs) == pytest.approx(expected, abs=1e-4)  # type: ignore[attr-defined]
        return

    opened.index(passages(30), tmp_path / "index")
    queries = pl.DataFrame({"query_id": ["1"], "text": ["alpha beta"]})
    [(_, hits)] = opened.search(queries, tmp_path / "index", 5)
    assert len(hits) == 5
