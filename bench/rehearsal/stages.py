"""The stages of a benchmark, each by the product's own code. A killed stage resumes as the product does."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from baselines import config, systems
from baselines.cells.cell import Cell
from baselines.grid import stages
from baselines.options import Trained
from baselines.runners import candidates
from baselines.training.queries import Lookup, dataset, passage_texts, training
from bench.rehearsal import backbone
from bench.rehearsal import release as made_up
from bench.rehearsal.sizes import Sizes
from builder import negatives
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, open_release
from eval_kit.runs import names
from eval_kit.search import bm25, cache
from eval_kit.search.passages import passages
from eval_kit.search.retriever import Retriever

NEURAL = {"batch_size": 32, "learning_rate": 1e-3, "warmup": 0.1, "negatives": 1, "checkpoint_every": 1_000}
LENGTHS = {"query_length": 32, "passage_length": 180}
OPTIONS: dict[str, dict[str, Any]] = {
    "bm25": {},
    "biencoder": {**NEURAL, **LENGTHS, "store": "float16"},
    "splade": {**NEURAL, **LENGTHS, "passage_flops": 1e-4, "query_flops": 1e-4, "batch_size": 4},
    "colbert": {**NEURAL, **LENGTHS, "dimensions": 16, "engine": "exact", "store": "float16"},
    "monobert": {**NEURAL, "pair_length": 220, "candidates": 1_000},
}


@dataclass(frozen=True)
class Work:
    """Where the stages work, and how much there is."""

    folder: Path
    sizes: Sizes

    @cached_property
    def release(self) -> Release:
        """The release that the first stage wrote."""
        return open_release(self.folder / "release")

    @property
    def passages(self) -> Any:
        """The texts that the grid keeps."""
        return passage_texts(self.cell("biencoder"))

    def cell(self, system: str) -> Cell:
        """A cell of the grid that the stages share."""
        options = OPTIONS[system] | {"depth": 1_000}
        if system != "bm25":
            options = options | {"steps": self.sizes.steps, "backbone": str(backbone.make(self.folder / "backbone"))}
        system_options = config.check({"systems": {system: options}}, "rehearsal")[system]
        return Cell(names.RunName(system, made_up.SHIFT, "c0"), self.release, system_options, self.folder / "grid")

    def retriever(self, system: str) -> Retriever:
        """The model that an earlier stage trained."""
        cell = self.cell(system)
        return systems.system(system).retriever(cell.model, cell.options.as_json())

    def queries(self, count: int) -> pl.DataFrame:
        """The first test queries."""
        return self.cell("bm25").test_queries()[:count]


def _passages(work: Work) -> int:
    made_up.make(work.folder / "release", work.sizes)
    return work.sizes.passages


def _index(work: Work) -> int:
    bm25.index_of(work.release, cache.cache_folder())
    return work.sizes.passages


def _examples(work: Work) -> int:
    cell = work.cell("biencoder")
    queries = training(cell)
    examples, _ = dataset(cell, queries, Lookup(queries.texts, work.passages), work.sizes.examples)
    return len(examples)


def _candidates(work: Work) -> int:
    cell = work.cell("monobert")
    candidates.find([cell])
    return cell.test_queries().height


def _train(system: str, work: Work) -> int:
    cell = work.cell(system)
    cell.folder.mkdir(parents=True, exist_ok=True)
    systems.system(system).train(cell)
    return work.sizes.steps * cell.options_as(Trained).batch_size


def _encode(system: str, work: Work) -> int:
    work.retriever(system).index(work.passages, systems.index_folder(work.cell(system)))
    return work.sizes.passages


def _search(system: str, count: int, work: Work) -> int:
    cell, retriever = work.cell(system), work.retriever(system)
    if system == "monobert":
        retriever.index(work.passages, systems.index_folder(cell))  # links to what the grid keeps
    hits = retriever.search(work.queries(count), systems.index_folder(cell), cell.options.depth)
    return sum(1 for _ in hits)


def _run(work: Work) -> int:
    cell, retriever = work.cell("bm25"), work.retriever("bm25")
    retriever.index(passages(cell.release), systems.index_folder(cell))
    if not cell.run.is_file():
        stages.search(cell, retriever, lambda progress: None)
    stages.publish(cell)
    with cell.run.open("rb") as run:
        return sum(1 for _ in run)


def _score(work: Work) -> int:
    [source] = score([work.cell("bm25").run], work.release).provenance["runs"]
    return int(source["lines"])


@dataclass(frozen=True)
class Stage:
    """A stage: its work, which returns how many units it did, their name, and a title."""

    run: Callable[[Work], int]
    unit: str
    title: str


# Stages with a stable cost per query search only some.
STAGES: dict[str, Stage] = {
    "passages": Stage(_passages, "passages", "passages, queries and judgements made up, and written as a release"),
    "texts": Stage(lambda work: len(work.passages), "passages", "texts kept for the grid"),
    "bm25 index": Stage(_index, "passages", "Lucene's index"),
    "negatives": Stage(
        lambda work: negatives.add(work.folder / "release").table("negatives", "train").height,
        "queries",
        "100 of BM25's best 1,000 for every training query",
    ),
    "examples": Stage(_examples, "examples", "what a bi-encoder trains on in 100,000 steps of 128, as ids"),
    "candidates": Stage(_candidates, "queries", "BM25's best 1,000 for every test query"),
    **{
        f"train {system}": Stage(partial(_train, system), "queries", "200 steps of a BERT with one layer of width 32")
        for system in OPTIONS
        if system != "bm25"
    },
    "encode biencoder": Stage(partial(_encode, "biencoder"), "passages", "by that model"),
    "encode colbert": Stage(partial(_encode, "colbert"), "passages", "by that model, 16 dimensions a token"),
    "search biencoder": Stage(partial(_search, "biencoder", 100), "queries", "exact, 100 queries"),
    "search colbert": Stage(partial(_search, "colbert", 4), "queries", "exact, a minute a query at full size"),
    "re-ranking": Stage(partial(_search, "monobert", 10), "queries", "1,000 candidates each"),
    "run": Stage(_run, "lines", "BM25's run of all test queries"),
    "score": Stage(_score, "lines", "that run, on all measures"),
}
