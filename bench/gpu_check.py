"""``python -m bench.gpu_check``: how long this GPU needs for each part of the paper's grid, in ten minutes.

Nothing comes from outside: passages are made up of the real uncased vocabulary, weights are drawn at random in the
shape of DistilBERT. Each neural system trains with the batch and lengths of the config ``paper``, in bfloat16 or what
the card has instead. Writes ``bench/results/gpu-<card>.json``, from which ``python -m bench.cost`` projects, and says
in one line what the card is good for. Without a GPU it runs tiny sizes, as a smoke test.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from baselines import config, systems
from baselines.cells.cell import Cell
from baselines.training.queries import passage_texts
from bench import cost
from bench.rehearsal import backbone
from bench.rehearsal import release as made_up
from bench.rehearsal.sizes import PASSAGES, Sizes
from bench.training import NEURAL, ours
from eval_kit.release import Release, open_release
from eval_kit.runs import names
from eval_kit.search import dense, late, shards, sparse
from eval_kit.search.gpus import instead_of_bfloat16

LEFT_OUT = ("evaluate_every", "patience", "loader_processes")
"""Options dropped for the 30-step check."""
DIMENSIONS, TOKEN_DIMENSIONS, TOKENS = 768, 128, 68
NON_ZEROS, QUERY_NON_ZEROS, TERMS = 130, 24, 30_522
"""Weights of a passage and of a query in SPLADE, and the terms of its vocabulary."""
DEPTH = 1_000
BESIDE = 1.5
"""GB of a card beside a training step: CUDA's context, the optimiser's own step, fragments."""


@dataclass(frozen=True)
class Scope:
    """How much of everything: the backbone's shape, steps of a training, passages trained on, encoded and searched."""

    layers: int
    width: int
    heads: int
    steps: int
    passages: int
    searched: int
    plaid: int
    queries: int
    options: dict[str, Any]
    """Options that replace the paper's."""


GPU = Scope(6, 768, 12, 30, 50_000, PASSAGES, 1_000_000, 1_000, {})
CPU = Scope(
    1, 32, 2, 3, 300, 400, 300, 4,
    {"batch_size": 4, "precision": "float32", "encode_precision": "float32", "candidates": 5, "share": 2},
)  # fmt: skip


def main() -> None:
    """Measure, print, and write the JSON."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, help="where temporary files go, about 60 GB on a GPU")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    arguments = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # figures are of one card
    on_gpu = torch.cuda.is_available()
    card = torch.cuda.get_device_name().replace(" ", "-") if on_gpu else "none"
    out = arguments.out or cost.RESULTS / f"gpu-{card}.json"
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        document = measure(Path(folder), GPU if on_gpu else CPU)
    out.write_text(json.dumps({"card": card, **document}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    if on_gpu:
        memory = torch.cuda.get_device_properties(0).total_memory / 1e9
        print(verdict({"card": card, **document}, memory))


def verdict(document: Mapping[str, Any], memory: float) -> str:
    """One line: the card with its ``memory`` in GB, whose batches it holds whole, and what the paper's grid costs."""
    bounds = json.loads((cost.RESULTS / "bounds.json").read_text(encoding="utf-8"))
    large = [system for system in NEURAL if bounds[f"paper/{system}"]["peak_gb"] + BESIDE > memory]
    fits = f"all batches of the paper fit but those of {', '.join(large)}" if large else "all batches of the paper fit"
    failures = [name for name, part in document.items() if isinstance(part, dict) and "error" in part]
    if failures:
        return f"{document['card']}, {memory:.0f} GB: {fits}; no hours, as these parts failed: {', '.join(failures)}"
    hours = cost.span(sum(cost.projection(document, "paper", PASSAGES).values(), np.zeros(cost.DRAWS)))
    return f"{document['card']}, {memory:.0f} GB: {fits}; the paper's grid would take {hours} hours"


def measure(folder: Path, scope: Scope) -> dict[str, Any]:
    """The figures of every part, or its error if it fails."""
    import torch

    document: dict[str, Any] = {"torch": torch.__version__, "passages": scope.passages, "searched": scope.searched}
    parts: dict[str, Callable[[Path], Any]] = {}
    release = _release(folder / "release", scope)
    for system in NEURAL:
        parts[f"train {system}"] = lambda _, system=system: train(release, folder, system, scope)
    for system in ("biencoder", "splade", "colbert"):
        parts[f"encode {system}"] = lambda _, system=system: encode(release, folder, system, scope)
    parts["re-rank"] = lambda _: rerank(release, folder, scope)
    parts["dense search"] = lambda scratch: dense_search(scratch, scope)
    parts["sparse search"] = lambda scratch: sparse_search(scratch, scope)
    parts["plaid"] = lambda scratch: plaid(scratch, scope)
    for name, part in parts.items():
        start = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                document[name] = part(Path(scratch))
        except Exception as error:  # the other parts are worth having
            document[name] = {"error": f"{type(error).__name__}: {error}"}
        print(f"{name}: {time.monotonic() - start:.1f} s: {document[name]}", flush=True)
    return document


def cell(release: Release, root: Path, system: str, scope: Scope) -> Cell:
    """A cell of the paper's config on a backbone drawn at random."""
    options_of_card = config.choose("paper", [system], instead_of_bfloat16=instead_of_bfloat16())[system]
    paper = {name: value for name, value in options_of_card.as_json().items() if name not in LEFT_OUT}
    model = backbone.make(root / "backbone", scope.layers, scope.width, scope.heads)
    overrides = {name: value for name, value in scope.options.items() if name in paper}
    settings = paper | overrides | {"steps": scope.steps, "backbone": str(model)}
    options_of_system = config.check({"systems": {system: settings}}, "gpu-check")[system]
    return Cell(names.RunName(system, made_up.SHIFT, "c0"), release, options_of_system, root / "grid")


def train(release: Release, root: Path, system: str, scope: Scope) -> dict[str, Any]:
    """Samples per second after the first step, and the greatest GPU memory in GB."""
    import torch

    new_cell = cell(release, root, system, scope)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    rate = ours(new_cell)["samples_per_second"]
    facts = json.loads((new_cell.folder / "training.json").read_text(encoding="utf-8"))
    return {
        "samples_per_second": round(rate, 2),
        "batch_size": facts["batch_size"],
        "mini_batch_size": facts["mini_batch_size"],
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if on_gpu else None,
    }


def encode(release: Release, root: Path, system: str, scope: Scope) -> dict[str, Any]:
    """Passages per second of the trained model, from the grid's token ids."""
    trained_cell = cell(release, root, system, scope)
    # PLAID's index is measured on its own
    options = trained_cell.options.as_json() | ({"engine": "exact"} if system == "colbert" else {})
    retriever = systems.system(system).retriever(trained_cell.model, options)
    retriever.index(passage_texts(trained_cell), root / "encoded" / system)
    encodings = shards.read(root / "encoded" / system)
    return {"passages_per_second": round(len(encodings) / max(encodings.seconds, 1e-9), 1)}


def rerank(release: Release, root: Path, scope: Scope) -> dict[str, Any]:
    """Pairs per second of the trained cross-encoder."""
    trained_cell = cell(release, root, "monobert", scope)
    retriever = systems.system("monobert").retriever(trained_cell.model, trained_cell.options.as_json())
    texts = release.table("passages", "passages")["text"][: 100 * scope.queries].to_list()
    pairs = [("what is the best of all", text) for text in texts]
    start = time.monotonic()
    retriever.scores(pairs)
    rate = len(pairs) / (time.monotonic() - start)
    return {"pairs_per_second": round(rate, 1)}


def dense_search(folder: Path, scope: Scope) -> dict[str, Any]:
    """The speed of exact search over drawn float16 vectors."""
    rng = np.random.default_rng(13)

    def encode(texts: list[str]) -> shards.Arrays:
        return {"vectors": rng.standard_normal((len(texts), DIMENSIONS), dtype=np.float32).astype(np.float16)}

    index = shards.write(_numbered_passages(scope.searched), folder, encode, "drawn")
    queries = rng.standard_normal((scope.queries, DIMENSIONS), dtype=np.float32)
    return _speeds(lambda some: dense.exact(some, index, DEPTH), queries)


def sparse_search(folder: Path, scope: Scope) -> dict[str, Any]:
    """The speed of exact search over drawn weights."""
    blocks = iter(range(scope.searched))

    def encode(texts: list[str]) -> Any:
        return sparse.arrays_of(weights(next(blocks), len(texts), NON_ZEROS))

    index = shards.write(_numbered_passages(scope.searched), folder, encode, "drawn")
    queries = weights(TERMS, scope.queries, QUERY_NON_ZEROS)
    return _speeds(lambda some: sparse.exact(some, index, DEPTH), queries)


def weights(seed: int, rows: int, non_zeros: int) -> Any:
    """A CSR matrix (rows, terms) of about ``non_zeros`` weights a row; low term numbers are the most frequent."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng([13, seed])
    terms = (TERMS * rng.random((rows, non_zeros)) ** 2).astype(np.int32)  # a term that is drawn twice is summed
    values = rng.random(rows * non_zeros, dtype=np.float32)
    starts = np.arange(0, rows * non_zeros + 1, non_zeros)
    matrix = csr_matrix((values, terms.reshape(-1), starts), shape=(rows, TERMS))
    matrix.sum_duplicates()
    return matrix


def plaid(folder: Path, scope: Scope) -> dict[str, Any]:
    """Seconds to build a PLAID index, and queries per second."""
    rng = np.random.default_rng(13)
    centres = rng.standard_normal((4_096, TOKEN_DIMENSIONS), dtype=np.float32)

    def tokens(count: int) -> Any:
        near = centres[rng.integers(len(centres), size=count)]
        rows = near + rng.standard_normal(near.shape, dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def encode(texts: list[str]) -> shards.Arrays:
        lengths = np.full(len(texts), TOKENS, np.int32)
        return {"tokens": tokens(int(lengths.sum())).astype(np.float16), "lengths": lengths}

    index = shards.write(_numbered_passages(scope.plaid), folder, encode, "drawn")
    queries = [tokens(32) for _ in range(scope.queries)]
    start = time.monotonic()
    late.build(index, "plaid", folder)
    end = time.monotonic()
    list(late.plaid(queries, late.load(index, folder), index, DEPTH))
    rate = len(queries) / (time.monotonic() - end)
    return {"passages": scope.plaid, "build_s": round(end - start, 1), "queries_per_second": round(rate, 2)}


def _numbered_passages(count: int) -> Iterator[tuple[str, str]]:
    """Passages without texts."""
    return ((str(number), "") for number in range(count))


def _release(folder: Path, scope: Scope) -> Release:
    queries = max(40, scope.passages // 10)
    made_up.make(folder, Sizes(scope.passages, train=queries, test=40, validation=20, examples=1), negatives=True)
    return open_release(folder)


def _speeds(search: Callable[[Any], Any], queries: Any) -> dict[str, Any]:
    """Queries per second, without the first call, which loads the index."""
    list(search(queries[:1]))
    start = time.monotonic()
    list(search(queries))
    return {"queries_per_second": round(queries.shape[0] / (time.monotonic() - start), 2)}


if __name__ == "__main__":
    main()
