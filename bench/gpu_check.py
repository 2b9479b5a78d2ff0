"""``python -m bench.gpu_check``: what this machine's GPU takes for each part of the paper's grid, in ten minutes.

Nothing comes from outside: passages are made up of the real uncased vocabulary, weights are drawn at random in the
shape of DistilBERT. Each neural system trains with the batch and lengths of the config ``paper``, in bfloat16. Writes
``bench/results/gpu-<card>.json``, from which ``python -m bench.cost`` projects. Without a GPU the same is done at sizes
that a CPU takes seconds for: then only that it works is shown.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.rehearsal.sizes import PASSAGES, Sizes

RESULTS = Path(__file__).parent / "results"
NEURAL = ("biencoder", "splade", "colbert", "monobert")
LEFT_OUT = ("evaluate_every", "patience", "loader_processes")
"""Options of the paper's config that a check of 30 steps has no use for."""
DIMENSIONS, TOKEN_DIMENSIONS, TOKENS = 768, 128, 68
DEPTH = 1_000
SAME = 1e-5
"""Difference of two weights after a step of a hundred times that."""


@dataclass(frozen=True)
class Scope:
    """How much of everything.

    Attributes:
        layers: of the backbone, of width ``width`` with ``heads`` heads.
        steps: of each training.
        passages: that are trained on and encoded.
        searched: vectors in the dense and the sparse index.
        plaid: passages in the PLAID index.
        queries: that are searched.
        product: rows and columns of the matrices whose product is taken for the card's peak.
        options: that take the place of the paper's.
    """

    layers: int
    width: int
    heads: int
    steps: int
    passages: int
    searched: int
    plaid: int
    queries: int
    product: int
    options: dict[str, Any]


GPU = Scope(6, 768, 12, 30, 50_000, PASSAGES, 1_000_000, 1_000, 8_192, {})
CPU = Scope(
    1, 32, 2, 3, 300, 400, 300, 4, 512,
    {"batch_size": 4, "precision": "float32", "encode_precision": "float32", "candidates": 5, "share": 2},
)  # fmt: skip


def main() -> None:
    """Measure, print, and write the JSON."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--folder", type=Path, help="for what is made, about 60 GB on a GPU; a temporary one without it"
    )
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    given = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # figures are of one card
    on_gpu = torch.cuda.is_available()
    card = torch.cuda.get_device_name().replace(" ", "-") if on_gpu else "none"
    out = given.out or RESULTS / f"gpu-{card}.json"
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        document = measured(Path(folder), GPU if on_gpu else CPU)
    out.write_text(json.dumps({"card": card, **document}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))


def measured(folder: Path, scope: Scope) -> dict[str, Any]:
    """Every part, and where one fails its error in the place of its figures."""
    import torch

    peak = _matmul(scope.product)
    document: dict[str, Any] = {
        "torch": torch.__version__,
        "passages": scope.passages,
        "searched": scope.searched,
        "matmul_tflops": round(peak / 1e12, 3),
    }
    parts: dict[str, Callable[[], Any]] = {}
    release = _release(folder / "release", scope)
    for system in NEURAL:
        parts[f"train {system}"] = lambda system=system: train_and_count(release, folder, system, scope, peak)
    for system in ("biencoder", "splade", "colbert"):
        parts[f"encode {system}"] = lambda system=system: encode(release, folder, system, scope, peak)
    parts["re-rank"] = lambda: rerank(release, folder, scope, peak)
    parts["dense search"] = lambda: dense_search(folder / "dense", scope)
    parts["sparse search"] = lambda: sparse_search(folder / "sparse", scope)
    parts["plaid"] = lambda: plaid(folder / "plaid", scope)
    parts["two processes"] = lambda: two_processes(release, folder, scope)
    if torch.cuda.is_available():
        parts["out of memory"] = lambda: out_of_memory(release, folder, scope)
    for name, part in parts.items():
        begun = time.monotonic()
        try:
            document[name] = part()
        except Exception as error:  # the other parts are worth having
            document[name] = {"error": f"{type(error).__name__}: {error}"}
        print(f"{name}: {time.monotonic() - begun:.1f} s: {document[name]}", flush=True)
    return document


def cell(release: Any, root: Path, system: str, scope: Scope, **options: Any) -> Any:
    """A cell of the paper's config on a backbone that is drawn at random."""
    from baselines import config
    from baselines.grid.cell import Cell
    from bench.rehearsal import backbone
    from bench.rehearsal.release import SHIFT
    from eval_kit.runs import names

    paper = {name: value for name, value in config.load("paper")[system].items() if name not in LEFT_OUT}
    model = backbone.make(root / "backbone", scope.layers, scope.width, scope.heads)
    known = {name: value for name, value in scope.options.items() if name in paper}
    chosen = paper | known | {"steps": scope.steps, "backbone": str(model)} | options
    checked = config.checked({"systems": {system: chosen}}, "gpu-check")[system]
    return Cell(names.Cell(system, SHIFT, "c0"), release, checked, root / "grid")


def train_and_count(release: Any, root: Path, system: str, scope: Scope, peak: float) -> dict[str, Any]:
    """The figures of :func:`train`, and the share of the peak."""
    step = cell(release, root / "step", system, scope, steps=1)
    operations = _operations(lambda: _systems(system).train(step)) / step.options["batch_size"]
    figures = train(release, root, system, scope)
    return figures | {"share_of_peak": round(operations * figures["samples_per_second"] / peak, 6)}


def train(release: Any, root: Path, system: str, scope: Scope) -> dict[str, Any]:
    """Samples a second after the first step, and the GPU's memory at its most (GB)."""
    import torch

    from bench.baselines_training import ours

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trained = cell(release, root, system, scope)
    figures = ours(trained)
    facts = json.loads((trained.folder / "training.json").read_text(encoding="utf-8"))
    return {
        "samples_per_second": round(figures["samples_per_second"], 2),
        "batch_size": facts["batch_size"],
        "mini_batch_size": facts["mini_batch_size"],
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if torch.cuda.is_available() else None,
    }


def encode(release: Any, root: Path, system: str, scope: Scope, peak: float) -> dict[str, Any]:
    """Passages a second of the model that was trained, from the token ids that a grid keeps; the share of the peak."""
    from baselines.training.queries import passage_texts
    from search import shards

    trained = cell(release, root, system, scope, **({"engine": "exact"} if system == "colbert" else {}))
    source = cell(release, root, system, scope)
    retriever = _systems(system).retriever(source.model, trained.options)
    passages, folder = passage_texts(source), root / "encoded" / system
    operations = _operations(lambda: retriever.index(passages, root / "counted" / system)) / len(passages)
    retriever.index(passages, folder)
    encoded = shards.read(folder)
    rate = len(encoded) / max(encoded.seconds, 1e-9)
    return {"passages_per_second": round(rate, 1), "share_of_peak": round(operations * rate / peak, 6)}


def rerank(release: Any, root: Path, scope: Scope, peak: float) -> dict[str, Any]:
    """Pairs a second of the cross-encoder that was trained; the share of the peak."""
    trained = cell(release, root, "monobert", scope)
    retriever = _systems("monobert").retriever(trained.model, trained.options)
    texts = release.table("passages", "passages")["text"][: 100 * scope.queries].to_list()
    pairs = [("what is the best of all", text) for text in texts]
    operations = _operations(lambda: retriever.scores(pairs)) / len(pairs)
    begun = time.monotonic()
    retriever.scores(pairs)
    rate = len(pairs) / (time.monotonic() - begun)
    return {"pairs_per_second": round(rate, 1), "share_of_peak": round(operations * rate / peak, 6)}


def dense_search(folder: Path, scope: Scope) -> dict[str, Any]:
    """Queries a second of the exact search, all in one call, and milliseconds of one alone."""
    from search import dense, shards

    drawn = np.random.Generator(np.random.PCG64(13))

    def vectors(texts: list[str]) -> shards.Arrays:
        return {"vectors": drawn.standard_normal((len(texts), DIMENSIONS), dtype=np.float32).astype(np.float16)}

    stored = shards.write(_numbered(scope.searched), folder, vectors, "drawn")
    queries = drawn.standard_normal((scope.queries, DIMENSIONS), dtype=np.float32)
    return _speeds(lambda some: dense.exact(some, stored, DEPTH), queries, folder)


def sparse_search(folder: Path, scope: Scope) -> dict[str, Any]:
    """The same of the sparse search."""
    from bench.rehearsal.stages import NON_ZEROS, QUERY_NON_ZEROS, TERMS, weights
    from search import shards, sparse

    numbers = iter(range(scope.searched))
    stored = shards.write(
        _numbered(scope.searched),
        folder,
        lambda texts: sparse.arrays_of(weights(next(numbers), len(texts), NON_ZEROS)),
        "drawn",
    )
    queries = weights(TERMS, scope.queries, QUERY_NON_ZEROS)
    return _speeds(lambda some: sparse.exact(some, stored, DEPTH), queries, folder)


def plaid(folder: Path, scope: Scope) -> dict[str, Any]:
    """Seconds that a PLAID index takes to build, queries a second, and how many of the exact ten it finds."""
    from search import late, shards

    drawn = np.random.Generator(np.random.PCG64(13))
    centres = drawn.standard_normal((4_096, TOKEN_DIMENSIONS), dtype=np.float32)

    def tokens(count: int) -> Any:
        near = centres[drawn.integers(len(centres), size=count)]
        rows = near + drawn.standard_normal(near.shape, dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def encoded(texts: list[str]) -> shards.Arrays:
        lengths = np.full(len(texts), TOKENS, np.int32)
        return {"tokens": tokens(int(lengths.sum())).astype(np.float16), "lengths": lengths}

    stored = shards.write(_numbered(scope.plaid), folder, encoded, "drawn")
    queries = [tokens(32) for _ in range(scope.queries)]
    few = queries[:4]
    expected = [{passage for passage, _ in hits[:10]} for hits in late.exact(few, stored, 10)]
    begun = time.monotonic()
    late.build(stored, "plaid", folder)
    seconds = time.monotonic() - begun
    index = late.load(stored, "plaid", folder)
    begun = time.monotonic()
    hits = list(late.plaid(queries, index, stored, DEPTH))
    rate = len(queries) / (time.monotonic() - begun)
    same = [len(wanted & {passage for passage, _ in own[:10]}) for wanted, own in zip(expected, hits, strict=False)]
    shutil.rmtree(folder)
    return {
        "passages": scope.plaid,
        "build_s": round(seconds, 1),
        "queries_per_second": round(rate, 2),
        "same_top_10": sum(same) / (10 * len(few)),
    }


def two_processes(release: Any, root: Path, scope: Scope) -> dict[str, Any]:
    """How many weights a step moves, and to what share of them two processes, which gather, do what one does.

    Adam turns a gradient that is but rounding into a whole step, so not all are the same. Without dropout, whose draws
    differ; on CPUs, as two processes of NCCL need two GPUs.
    """
    from safetensors.torch import load_file

    from baselines.training import torchrun
    from bench.rehearsal import backbone

    drawn = backbone.make(root / "without-dropout", dropout=0.0)
    options = {"batch_size": 4, "precision": "float32", "warmup": 0, "learning_rate": 1e-3, "backbone": str(drawn)}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        weights = []
        for processes in (1, 2):
            own = cell(release, root / f"processes-{processes}", "biencoder", replace(scope, steps=1), **options)
            torchrun.train(own, processes, lambda progress: None)
            weights.append(load_file(own.model / "model.safetensors"))
    finally:
        if visible is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
    alone, together = weights
    before = {name.removeprefix("bert."): weight for name, weight in load_file(drawn / "model.safetensors").items()}
    moved = same = 0
    for name in alone.keys() & before.keys():
        changed = (alone[name] != before[name]) | (together[name] != before[name])
        moved += int(changed.sum())
        same += int((changed & ((alone[name] - together[name]).abs() < SAME)).sum())
    return {"moved": moved, "same": round(same / moved, 4)}


def out_of_memory(release: Any, root: Path, scope: Scope) -> dict[str, Any]:
    """The mini-batch that a training goes on with, whose whole batch the memory does not hold."""
    import torch

    trained = json.loads((cell(release, root, "splade", scope).folder / "training.json").read_text(encoding="utf-8"))
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:
        facts = train(release, root / "little", "splade", scope)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {"before": trained["mini_batch_size"], **facts}


def _release(folder: Path, scope: Scope) -> Any:
    from bench.rehearsal.release import make
    from eval_kit.release import open_release

    queries = max(40, scope.passages // 10)
    make(folder, Sizes(scope.passages, train=queries, test=40, validation=20, examples=1), negatives=True)
    return open_release(folder)


def _systems(name: str) -> Any:
    from baselines import systems

    return systems.system(name)


def _matmul(size: int) -> float:
    """The peak of this machine in operations a second: of products of two such matrices, in bfloat16 on a GPU."""
    import torch
    from torch.utils.benchmark import Timer

    on_gpu = torch.cuda.is_available()
    kind = {"device": "cuda", "dtype": torch.bfloat16} if on_gpu else {}
    product = Timer("matrix @ matrix", globals={"matrix": torch.randn(size, size, **kind)})
    return float(2 * size**3 / product.timeit(50).mean)


def _operations(work: Callable[[], object]) -> int:
    """Floating-point operations of a piece of work, those on padding too, by torch's own count."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def _numbered(count: int) -> Any:
    from bench.rehearsal.stages import Numbered

    return Numbered(count)


def _speeds(search: Callable[[Any], Any], queries: Any, folder: Path) -> dict[str, Any]:
    """Of a search whose first call loads the index."""
    begun = time.monotonic()
    list(search(queries[:1]))
    first = time.monotonic() - begun
    begun = time.monotonic()
    list(search(queries[:1]))
    alone = time.monotonic() - begun
    begun = time.monotonic()
    list(search(queries))
    rate = queries.shape[0] / (time.monotonic() - begun)
    shutil.rmtree(folder)
    return {
        "first_ms": round(1_000 * first, 1),
        "alone_ms": round(1_000 * alone, 1),
        "queries_per_second": round(rate, 2),
    }


if __name__ == "__main__":
    main()
