"""What the four neural systems of a config do in a second on one device, for ``baselines cost``."""

import contextlib
import io
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from baselines import config, systems
from baselines.cost import MS_MARCO_PASSAGES
from baselines.grid.cell import Cell
from bench.baselines_data import mini_release
from bench.baselines_training import NEURAL, Clock, cell_of, parts_of, plain_trainer
from bench.turns import timed
from eval_kit.release import Release
from search import shards
from search.passages import passages
from search.shards import index_bytes

PEAK_TFLOPS = {"H100 PCIe": 756, "H100": 989, "H200": 989, "A100": 312, "V100": 125}
"""Dense half-precision matrix operations with 32-bit accumulation, as NVIDIA's data sheets have them."""
VOCABULARY = 30_522
HEAD_BIAS = -2.15
"""Of the head for masked words: without it weights drawn at random give each passage half of the vocabulary's terms."""
COUNTED_STEPS = 3
EXACT = ("biencoder", "splade")
"""Systems whose search reads every passage, so that its time grows with their number."""


@dataclass(frozen=True)
class Sizes:
    """What is measured, and how much; as it stands, for a GPU.

    Attributes:
        config: whose options are taken.
        steps: of each training.
        queries: of the mini release that is trained on.
        passages: encoded and searched.
        searched: queries in one search, as many as the grid asks at once.
        pairs: scored by the re-ranker.
        shape: changes to the backbone's; its vocabulary holds all words, however small.
        options: changes to each system's of the config.
    """

    config: str = "paper"
    steps: int = 300
    queries: int = 10_000
    passages: int = 50_000
    searched: int = 4_000
    pairs: int = 16_000
    shape: dict[str, int] | None = None
    options: dict[str, Any] | None = None


TINY = Sizes(
    steps=3,
    queries=500,
    passages=60,
    searched=5,
    pairs=40,
    shape={"vocab_size": 0, "n_layers": 1, "dim": 32, "n_heads": 2, "hidden_dim": 64},
    options={"batch_size": 4, "precision": "float32", "encode_precision": "float32", "loader_processes": 0},
)
"""For a smoke test on a CPU."""


def throughput(root: Path, sizes: Sizes, peak_tflops: float | None, told: Callable[[str], None]) -> dict[str, Any]:
    """Train, encode and search with each neural system, below ``root``.

    Args:
        root: a folder for models and passages.
        sizes: how much.
        peak_tflops: of the device; None looks its name up in ``PEAK_TFLOPS``.
        told: is told what is being measured.

    Returns:
        A document of schemas/throughput.schema.json.
    """
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    peak = peak_tflops or next((value for name, value in PEAK_TFLOPS.items() if name in device), None)
    release = mini_release(root / "release" / "ms-marco-shift", sizes.queries, real_lengths=True)
    backbone = _backbone(root / "backbone", release, {"n_layers": _layers(sizes.config)} | (sizes.shape or {}))
    found = {}
    for system in NEURAL:
        told(system)
        cell = _cell(system, release, backbone, root / "cells", sizes)
        trained = _trained(cell, peak)
        found[system] = {**trained, **(_reranking if system == "monobert" else _searching)(cell, root, sizes)}
    return {
        "device": device,
        "config": sizes.config,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "peak_tflops": peak,
        "backbone": f"DistilBERT's shape with {_layers(sizes.config)} layers, weights drawn at random",
        "passages": "random words, as long as passages of MS MARCO",
        "systems": found,
    }


def _layers(named: str) -> int:
    """Of the config's backbones: 6 where one of them is a DistilBERT, else 12, as in BERT-base."""
    backbones = {str(options["backbone"]) for options in config.load(named).values() if "backbone" in options}
    return 6 if any("distilbert" in one for one in backbones) else 12


def _cell(system: str, release: Release, backbone: Path, root: Path, sizes: Sizes) -> Cell:
    """Of the config, without early stopping."""
    import torch

    options = config.load(sizes.config)[system]
    wanted = {name: value for name, value in options.items() if name not in ("evaluate_every", "patience", "epochs")}
    wanted |= {"backbone": str(backbone), "steps": sizes.steps}
    if torch.cuda.is_available() and not torch.cuda.is_bf16_supported(including_emulation=False):
        wanted |= {"precision": "float16", "encode_precision": "float16"}
    if system == "colbert" and not torch.cuda.is_available():
        wanted["engine"] = "exact"
    return cell_of(system, release, wanted | (sizes.options or {}), root)


def _trained(cell: Cell, peak: float | None) -> dict[str, Any]:
    """Samples, tokens and operations a second, after the first tenth of the steps."""
    steps = cell.options["steps"]
    clock = Clock(steps, first=max(1, steps // 10))
    facts = systems.system(cell.place.system).train(cell, lambda told: clock(told["step"]))
    speed = clock.figures(facts["batch_size"])["samples_per_second"]
    tokens, operations = _work(replace(cell, options={**cell.options, "batch_size": facts["batch_size"]}))
    return {
        "steps": steps,
        "batch_size": facts["batch_size"],
        "precision": cell.options["precision"],
        "samples_per_second": speed,
        "tokens_per_sample": tokens,
        "tokens_per_second": tokens * speed,
        "operations_per_sample": operations,
        "tflops": operations * speed / 1e12,
        "share_of_peak": operations * speed / 1e12 / peak if peak else None,
    }


def _work(cell: Cell) -> tuple[float, float]:
    """Tokens (without padding) and matrix operations (with padding, forward and backward) of a training sample."""
    from torch.utils.flop_counter import FlopCounterMode

    parts = parts_of(cell)()
    trainer = plain_trainer(cell, parts, cell.root / "counted", COUNTED_STEPS)
    tokens: list[int] = []

    def count(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        features = next((one for one in arguments if "attention_mask" in one), named)
        tokens.append(int(features["attention_mask"].sum()))

    parts.model.register_forward_pre_hook(count, with_kwargs=True)
    with contextlib.redirect_stdout(io.StringIO()), FlopCounterMode(display=False) as counter:
        trainer.train()
    samples = COUNTED_STEPS * cell.options["batch_size"]
    return sum(tokens) / samples, counter.get_total_flops() / samples


def _searching(cell: Cell, root: Path, sizes: Sizes) -> dict[str, Any]:
    """Passages encoded and queries searched in a second.

    Where the search reads every passage, its speed is brought to the size of MS MARCO's collection.
    """
    retriever: Any = systems.system(cell.place.system).retriever(cell.model, cell.options)
    pairs = _pairs(cell.release, sizes.passages)
    folder = root / "index" / cell.place.system
    retriever.encode_passages([text for _, text in pairs[:64]])
    indexing = timed(lambda: retriever.index(pairs, folder))
    queries = _queries(cell.release, sizes.searched)
    for _ in retriever.search(queries[:5], folder, cell.options["depth"]):
        pass
    seconds = timed(lambda: sum(1 for _ in retriever.search(queries, folder, cell.options["depth"])))["wall_s"]
    speed = queries.height / seconds
    scaled = speed * len(pairs) / MS_MARCO_PASSAGES if cell.place.system in EXACT else speed
    return {
        "passages_per_second": len(pairs) / indexing["wall_s"],
        "passages_encoded_per_second": len(pairs) / shards.read(folder).seconds,
        "index_bytes_per_passage": index_bytes(folder) / len(pairs),
        "searched_passages": len(pairs),
        "queries_per_second_measured": speed,
        "queries_per_second": scaled,
    }


def _reranking(cell: Cell, root: Path, sizes: Sizes) -> dict[str, Any]:
    """Pairs scored in a second, and queries if each has as many candidates as the options say; without BM25's time."""
    model: Any = systems.system(cell.place.system).retriever(cell.model, cell.options)
    texts = [text for _, text in _pairs(cell.release, sizes.pairs)]
    pairs = list(zip(_queries(cell.release, sizes.pairs)["text"], texts, strict=True))
    model.scores(pairs[:64])
    speed = len(pairs) / timed(lambda: model.scores(pairs))["wall_s"]
    return {"pairs_per_second": speed, "queries_per_second": speed / cell.options["candidates"]}


def _pairs(release: Release, count: int) -> list[tuple[str, str]]:
    """So many passages, those of the release again and again."""
    return [(f"p{n}", text) for n, text in enumerate(_again((text for _, text in passages(release)), count))]


def _queries(release: Release, count: int) -> pl.DataFrame:
    texts = _again(release.table("topic", "test")["text"].to_list(), count)
    return pl.DataFrame({"query_id": [str(number) for number in range(count)], "text": texts})


def _again(texts: Iterable[str], count: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(texts), count))


def _backbone(folder: Path, release: Release, shape: dict[str, int]) -> Path:
    """A masked language model of DistilBERT's shape, its vocabulary filled up to BERT's size with unused tokens."""
    import torch
    from transformers import BertTokenizerFast, DistilBertConfig, DistilBertForMaskedLM, set_seed

    folder.mkdir(parents=True)
    tables = ("topic", "train"), ("topic", "test")
    asked = itertools.chain.from_iterable(release.table(*one)["text"].to_list() for one in tables)
    words = {word for text in itertools.chain((text for _, text in passages(release)), asked) for word in text.split()}
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]
    vocabulary += [f"[unused{number}]" for number in range(shape.get("vocab_size", VOCABULARY) - len(vocabulary))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    set_seed(0)
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=512)
    tokenizer.save_pretrained(folder)
    model = DistilBertForMaskedLM(DistilBertConfig(**shape | {"vocab_size": len(vocabulary)}))
    torch.nn.init.constant_(model.vocab_projector.bias, HEAD_BIAS)
    model.save_pretrained(folder)
    return folder
