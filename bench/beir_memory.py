"""``python -m bench.beir_memory``: the memory that searching a BEIR folder takes, for two numbers of documents.

Documents are synthetic, with 40 words by Zipf's law. Each stage is a separate process: ``read`` (only ids stay in
memory), ``feed`` (shards of passages for an encoder, which gives one number each), ``words`` (counted for ``eval_kit
overlap``), ``index`` and ``search`` (BM25 by Lucene, whose JVM may take 8 GB; a thousand queries of four words, a
thousand deep). Writes ``bench/results/beir_memory.json``.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.processes import cost
from eval_kit.files.beir import read_corpus
from eval_kit.stats import words_on_disk
from search import bm25, shards

RESULTS = Path(__file__).parent / "results"
WORDS = 100_000
LENGTH = 40


def main() -> None:
    """Measure every stage at every size, print a table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--stage", nargs=2, metavar=("STAGE", "FOLDER"), help="do one stage, in this process")
    parser.add_argument("--out", type=Path, default=RESULTS / "beir_memory.json")
    given = parser.parse_args()
    if given.stage:
        stage, folder = given.stage
        STAGES[stage](Path(folder))
        return
    measured = []
    for documents in given.documents:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "corpus.jsonl", documents)
            for stage in STAGES:
                figures = cost([sys.executable, "-m", "bench.beir_memory", "--stage", stage, folder])
                measured.append({"stage": stage, "documents": documents, **figures.as_json()})
                print(measured[-1], file=sys.stderr, flush=True)
    table = Table(box=None)
    for column in measured[0]:
        table.add_column(column, justify="right")
    for row in measured:
        table.add_row(*(f"{value:,}" if not isinstance(value, str) else value for value in row.values()))
    Console().print(table)
    given.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def write(corpus: Path, documents: int) -> None:
    """Write a corpus of synthetic documents."""
    rng = np.random.default_rng(13)
    vocabulary = np.array([f"word{number}" for number in range(WORDS)])
    with corpus.open("w", encoding="utf-8") as file:
        for number in range(documents):
            words = vocabulary[rng.zipf(1.2, LENGTH) % WORDS]
            file.write(json.dumps({"_id": f"document-{number}", "title": words[0], "text": " ".join(words[1:])}) + "\n")


def _read(folder: Path) -> None:
    for _ in read_corpus(folder / "corpus.jsonl"):
        pass


def _feed(folder: Path) -> None:
    def encode(texts: list[shards.Content]) -> shards.Arrays:
        return {"vectors": np.array([[len(text)] for text in texts], np.float32)}

    shards.write(read_corpus(folder / "corpus.jsonl"), folder / "shards", encode, "bench")


def _words(folder: Path) -> None:
    words_on_disk.count((text for _, text in read_corpus(folder / "corpus.jsonl")), folder / "words")


def _index(folder: Path) -> None:
    bm25.index(read_corpus(folder / "corpus.jsonl"), folder / "lucene")


def _search(folder: Path) -> None:
    documents = islice(read_corpus(folder / "corpus.jsonl"), 1_000)
    queries = ((passage_id, " ".join(text.split()[:4])) for passage_id, text in documents)
    for _ in bm25.search(queries, folder / "lucene"):
        pass


STAGES: dict[str, Callable[[Path], None]] = {
    "read": _read,
    "feed": _feed,
    "words": _words,
    "index": _index,
    "search": _search,
}

if __name__ == "__main__":
    main()
