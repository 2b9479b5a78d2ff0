"""The stages of a benchmark, each by the product's own code. A stage that was killed goes on as the product does."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.rehearsal import backbone
from bench.rehearsal.sizes import Sizes

NON_ZEROS, QUERY_NON_ZEROS, TERMS = 130, 24, 30_522
"""Weights of a passage and of a query in SPLADE, and the terms of its vocabulary."""
NEURAL = {
    "batch_size": 32,
    "learning_rate": 1e-3,
    "warmup": 0.1,
    "negatives": 1,
    "checkpoint_every": 1_000,
    "query_length": 32,
    "passage_length": 180,
    "depth": 1_000,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "bm25": {"depth": 1_000},
    "biencoder": {**NEURAL, "store": "float16"},
    "splade": {**NEURAL, "passage_flops": 1e-4, "query_flops": 1e-4, "batch_size": 4},
    "colbert": {**NEURAL, "dimensions": 16, "engine": "exact", "store": "float16"},
    "monobert": {
        **{name: value for name, value in NEURAL.items() if not name.endswith("_length")},
        "pair_length": 220,
        "candidates": 1_000,
    },
}
PART = "c0"
LOOK_UPS = 2_000


@dataclass(frozen=True)
class Work:
    """Where the stages work, and how much there is."""

    folder: Path
    sizes: Sizes

    @cached_property
    def release(self) -> Any:
        from eval_kit.release import open_release

        return open_release(self.folder / "release")

    def cell(self, system: str) -> Any:
        """A cell of the grid that the stages share."""
        from baselines import config
        from baselines.grid.cell import Cell
        from bench.rehearsal.release import SHIFT
        from eval_kit.runs import names

        options = OPTIONS[system]
        if system != "bm25":
            options = options | {"steps": self.sizes.steps, "backbone": str(backbone.make(self.folder / "backbone"))}
        checked = config.checked({"systems": {system: options}}, "rehearsal")[system]
        return Cell(names.Cell(system, SHIFT, PART), self.release, checked, self.folder / "grid")

    def retriever(self, system: str) -> Any:
        """The model that a stage before has trained."""
        from baselines import systems

        cell = self.cell(system)
        return systems.system(system).retriever(cell.model, cell.options)

    def queries(self, count: int) -> pl.DataFrame:
        """The first test queries."""
        return self.cell("bm25").test_queries()[:count]


@dataclass(frozen=True)
class Stage:
    """What it does: returns how many of what it did, or a ``count`` of that and what else it measured."""

    run: Callable[[Work], int | dict[str, Any]]
    unit: str
    title: str


def _passages(work: Work) -> int:
    from bench.rehearsal.release import make

    make(work.folder / "release", work.sizes)
    return work.sizes.passages


def _texts(work: Work) -> int:
    from baselines.training.queries import passage_texts

    return len(passage_texts(work.cell("biencoder")))


def _tokens(work: Work) -> int:
    from transformers import AutoTokenizer

    from baselines.training.queries import passage_texts
    from search import tokens

    cell = work.cell("biencoder")
    return len(tokens.write(passage_texts(cell), AutoTokenizer.from_pretrained(cell.options["backbone"])))


def _look_ups(work: Work) -> dict[str, Any]:
    from transformers import AutoTokenizer

    from baselines.training.queries import passage_texts
    from search import tokens

    cell = work.cell("biencoder")
    texts = passage_texts(cell)
    stored = tokens.write(texts, AutoTokenizer.from_pretrained(cell.options["backbone"]))
    rng, figures = np.random.default_rng(13), {}
    for name, look_up in (("texts", texts.of), ("token ids", stored.of)):
        batches = rng.integers(work.sizes.passages, size=(LOOK_UPS, 128)).astype(str).tolist()
        look_up(batches[0])  # opens the files
        begun = time.perf_counter()
        for ids in batches:
            look_up(ids)
        figures[f"128 {name}"] = round(1_000 * (time.perf_counter() - begun) / LOOK_UPS, 3)
    return {"count": 2 * LOOK_UPS, **figures}


def _feeding(work: Work) -> dict[str, Any]:
    from baselines.training.queries import passage_texts
    from bench.rehearsal import waiting

    cell = work.cell("biencoder")
    fed = waiting.measured(passage_texts(cell), cell.options["backbone"])
    return {"count": round(waiting.SECONDS * sum(fed.values())), **fed}


def _index(work: Work) -> int:
    from search import bm25, cache

    bm25.index_of(work.release, cache.cache_folder())
    return work.sizes.passages


def _negatives(work: Work) -> int:
    from builder import negatives

    release = negatives.add(work.folder / "release")
    return int(release.table("negatives", "train").height)


def _examples(work: Work) -> int:
    from baselines.training.queries import Lookup, dataset, passage_texts, training

    cell = work.cell("biencoder")
    queries = training(cell)
    examples, _ = dataset(cell, queries, Lookup(queries.texts, passage_texts(cell)), work.sizes.examples)
    return len(examples)


def _candidates(work: Work) -> int:
    from baselines.runners import candidates

    cell = work.cell("monobert")
    candidates.find([cell])
    return int(cell.test_queries().height)


def _train(system: str) -> Callable[[Work], int]:
    def train(work: Work) -> int:
        from baselines import systems

        cell = work.cell(system)
        cell.folder.mkdir(parents=True, exist_ok=True)
        systems.system(system).train(cell)
        return int(cell.options["steps"] * cell.options["batch_size"])

    return train


def _encode(system: str) -> Callable[[Work], int]:
    def encode(work: Work) -> int:
        from baselines import systems
        from baselines.training.queries import passage_texts

        cell = work.cell(system)
        work.retriever(system).index(passage_texts(cell), systems.index_folder(cell))
        return work.sizes.passages

    return encode


def _search(system: str, count: Callable[[Sizes], int]) -> Callable[[Work], int]:
    def search(work: Work) -> int:
        from baselines import systems
        from baselines.training.queries import passage_texts

        cell, queries, retriever = work.cell(system), work.queries(count(work.sizes)), work.retriever(system)
        if system == "monobert":
            retriever.index(passage_texts(cell), systems.index_folder(cell))  # links to what the grid keeps
        hits = retriever.search(queries, systems.index_folder(cell), cell.options["depth"])
        return sum(1 for _ in hits)

    return search


def _sparse_index(work: Work) -> int:
    from search import shards, sparse

    numbers = iter(range(work.sizes.passages))

    def drawn(texts: list[str]) -> Mapping[str, Any]:
        return sparse.arrays_of(weights(next(numbers), len(texts), NON_ZEROS))

    shards.write(Numbered(work.sizes.passages), work.folder / "sparse", drawn, "made up")
    return work.sizes.passages


def _sparse_search(work: Work) -> int:
    from search import shards, sparse

    queries = weights(TERMS, work.sizes.sampled, QUERY_NON_ZEROS)
    return sum(1 for _ in sparse.exact(queries, shards.read(work.folder / "sparse"), 1_000))


@dataclass(frozen=True)
class Numbered:
    """Passages without texts."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((str(number), "") for number in range(self.count))


def weights(seed: int, rows: int, non_zeros: int) -> Any:
    """A CSR matrix (rows, terms) of about so many weights a row, the first terms the most frequent."""
    from scipy.sparse import csr_matrix

    rng = np.random.Generator(np.random.PCG64([13, seed]))
    terms = (TERMS * rng.random((rows, non_zeros)) ** 2).astype(np.int32)  # a term that is drawn twice is summed
    values = rng.random(rows * non_zeros, dtype=np.float32)
    starts = np.arange(0, rows * non_zeros + 1, non_zeros)
    matrix = csr_matrix((values, terms.reshape(-1), starts), shape=(rows, TERMS))
    matrix.sum_duplicates()
    return matrix


def _run(work: Work) -> int:
    from baselines import systems
    from baselines.grid import stages
    from search.passages import passages

    cell = work.cell("bm25")
    retriever = work.retriever("bm25")
    retriever.index(passages(cell.release), systems.index_folder(cell))
    if not cell.run.is_file():
        stages.search(cell, retriever, lambda progress: None)
    stages.publish(cell)
    with cell.run.open("rb") as run:
        return sum(block.count(b"\n") for block in _blocks(run))


def _blocks(file: Any) -> Iterator[bytes]:
    return iter(lambda: file.read(1 << 20), b"")


def _score(work: Work) -> int:
    from eval_kit.measures.score import score

    [source] = score([work.cell("bm25").run], work.release).provenance["runs"]
    return int(source["lines"])


def _table(work: Work) -> int:
    """Five models' runs: BM25's, which is not trained, under five names."""
    from baselines.table import results
    from builder.test_sets import TOPICS

    run = work.cell("bm25").published
    for topic in TOPICS:
        target = run.with_name(run.name.replace(f".{PART}.", f".{topic}."))
        if not target.exists():
            target.hardlink_to(run)
    results(run.parent, work.release)
    return len(TOPICS)


STAGES: dict[str, Stage] = {
    "passages": Stage(_passages, "passages", "passages, queries and judgements made up, and written as a release"),
    "texts": Stage(_texts, "passages", "texts kept for the grid"),
    "tokens": Stage(_tokens, "passages", "token ids of the uncased vocabulary kept for the grid"),
    "look-ups": Stage(_look_ups, "look-ups", "128 passages each, texts and token ids"),
    "feeding": Stage(_feeding, "passages", "batches made of token ids, by processes without a model"),
    "bm25 index": Stage(_index, "passages", "Lucene's index"),
    "negatives": Stage(_negatives, "queries", "100 of BM25's best 1,000 for every training query"),
    "examples": Stage(_examples, "examples", "what a bi-encoder trains on in 100,000 steps of 128, as ids"),
    "candidates": Stage(_candidates, "queries", "BM25's best 1,000 for every test query"),
    "train biencoder": Stage(_train("biencoder"), "queries", "200 steps of a BERT with one layer of width 32"),
    "train splade": Stage(_train("splade"), "queries", "the same"),
    "train colbert": Stage(_train("colbert"), "queries", "the same"),
    "train monobert": Stage(_train("monobert"), "queries", "the same"),
    "encode biencoder": Stage(_encode("biencoder"), "passages", "by that model"),
    "encode colbert": Stage(_encode("colbert"), "passages", "by that model, 16 dimensions a token"),
    "search biencoder": Stage(_search("biencoder", lambda sizes: sizes.sampled), "queries", "exact, 100 queries"),
    "search colbert": Stage(_search("colbert", lambda sizes: 4), "queries", "exact, 4 queries"),
    "sparse index": Stage(_sparse_index, "passages", "130 weights a passage, made up"),
    "sparse search": Stage(_sparse_search, "queries", "exact, 100 queries of 24 weights"),
    "re-ranking": Stage(_search("monobert", lambda sizes: sizes.reranked), "queries", "1,000 candidates each"),
    "run": Stage(_run, "lines", "BM25's run of all test queries"),
    "score": Stage(_score, "lines", "that run, on all measures"),
    "table": Stage(_table, "runs", "In, Out and Rel Loss of five such runs"),
}
