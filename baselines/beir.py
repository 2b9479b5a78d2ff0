"""Search the datasets of BEIR with several systems (Thakur et al. 2021, §4); a finished run is not searched again."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from baselines.runners import Runner
from eval_kit import models
from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files import atomic, strict_json
from eval_kit.files.beir import judged_queries, read_corpus, read_fields
from eval_kit.models import checkpoints
from eval_kit.models.bm25 import Bm25
from eval_kit.models.cross import Cross
from eval_kit.models.runs import latency_ms, make_runs
from eval_kit.release import beir_suite
from eval_kit.release.beir_suite import dataset_name, split_of
from eval_kit.runs import contamination
from eval_kit.search import bm25
from eval_kit.search.passages import CountedPassages
from eval_kit.search.retriever import Hits, Passages, Retriever, best_first

BM25 = "bm25"
MULTIFIELD = "bm25-multifield"
LEXICAL = (BM25, MULTIFIELD)


def folders(parent: Path, names: Sequence[str]) -> list[Path]:
    """The dataset folders below ``parent``, twelve for CQADupStack; by default those of every BEIR dataset found there.

    Raises:
        UserError: one of them is missing, or there is none.
    """
    names_of_datasets = names or [name for name in beir_suite.datasets() if (parent / name).is_dir()]
    if not names_of_datasets:
        raise UserError(f"{parent}: holds no dataset of BEIR; download one with python -m builder beir NAME")
    parts = [part for name in names_of_datasets for part in beir_suite.parts(parent / name)]
    if missing := next((part for part in parts if not part.is_dir()), None):
        raise UserError(f"{missing}: there is no such folder; python -m builder beir fetches BEIR's datasets")
    return parts


def search(
    systems: Sequence[str], datasets: Sequence[Path], out: Path, depth: int, runner: Runner = Runner.local
) -> dict[str, list[Path]]:
    """Each system's runs, one per dataset: ``<system>.<dataset>.trec`` in ``out``; existing runs are kept.

    The measurements of a run are written beside it as ``<system>.<dataset>.json``; its index is removed.

    Args:
        systems: ``bm25``, ``bm25-multifield``, names of checkpoints, or any name whose runs all exist.
        datasets: folders in BEIR's format.
        out: the runs' folder.
        depth: passages per query.
        runner: where passages are encoded, if a system encodes them.

    Raises:
        UserError: an unknown system that lacks a run; a folder not in BEIR's format.
    """
    runs: dict[str, list[Path]] = {}
    missing = []
    for system in systems:
        runs[system] = []
        for folder in datasets:
            run = out / f"{system}.{dataset_name(folder)}.trec"
            runs[system].append(run)
            if not run.is_file():
                missing.append((system, run, folder))
    for system, run, folder in missing:
        try:
            check(system, folder)
        except UserError as error:
            raise UserError(f"{error}; there is no run {run} either") from None
    for system, run, folder in missing:
        with atomic.lock(run):  # another process may be making it, and will remove the index
            if not run.is_file():
                _search(system, folder, run, depth, runner)
    return runs


def measurements(runs: Mapping[str, Sequence[Path]]) -> dict[str, dict[str, Any]]:
    """The measurements taken when each run was made, by the run's name; runs from elsewhere have none."""
    files = [run.with_suffix(".json") for of_system in runs.values() for run in of_system]
    return {file.stem: strict_json.read(file) for file in files if file.is_file()}


def published_as() -> dict[str, str]:
    """The paper's name of each system that has a row in Table 2 under another name."""
    names = {MULTIFIELD: BM25}
    for entry in checkpoints.load().values():
        for row in entry.rows:
            if row["table"] == "beir2021-table2":
                names[entry.name] = row["system"]
    return names


def check(system: str, folder: Path) -> None:
    """Check that a system can search a dataset.

    Raises:
        UserError: its name is unknown.
    """
    registry = checkpoints.load()
    if system in LEXICAL:
        return
    if system not in registry:
        raise UserError(f"{system} is neither {' nor '.join(LEXICAL)} nor a checkpoint ({', '.join(registry)})")


def retriever(system: str, folder: Path, most: int | None = None) -> Retriever:
    """The retriever of a system that :func:`check` accepts; ``most`` as for :func:`passages`."""
    if system == BM25:
        return Bm25()
    if system == MULTIFIELD:
        return MultifieldBm25(folder / "corpus.jsonl", most)
    entry = checkpoints.checkpoint_named(system)
    return over_fields(models.retriever(entry.architecture, entry.model, entry.options), folder, most)


def over_fields(searcher: Retriever, folder: Path, most: int | None = None) -> Retriever:
    """The same retriever; a cross-encoder's candidates come from BM25 over title and text as two fields, as in §4."""
    if isinstance(searcher, Cross):
        searcher.first = MultifieldBm25(folder / "corpus.jsonl", most, searcher.k1, searcher.b)
    return searcher


def passages(folder: Path, most: int | None = None) -> CountedPassages:
    """``(passage id, text)`` of a dataset: the first ``most``, or all."""
    corpus = folder / "corpus.jsonl"
    count = 0
    if corpus.is_file():
        with corpus.open("rb") as lines:
            count = sum(1 for _ in islice(lines, most))
    return CountedPassages(lambda: islice(read_corpus(corpus), most), count)


def _search(system: str, folder: Path, run: Path, depth: int, runner: Runner) -> None:
    """Make a run; its file appears last, once those beside it are complete."""
    searcher, working = retriever(system, folder), run.with_suffix(".searching")
    index, part = working / "index", working / run.name
    if runner is Runner.ray and hasattr(searcher, "encode_passages"):
        from baselines.runners import ray

        ray.encode(searcher, passages(folder), index)
    queries = judged_queries(folder, split_of(folder))
    [figures] = make_runs(searcher, passages(folder), {part: queries}, index, depth)
    figures |= {"run": str(run), "latency_ms": latency_ms(searcher, queries, index, depth)}
    contamination.declare(run, [] if system in LEXICAL else checkpoints.checkpoint_named(system).training_data)
    atomic.write_text(run.with_suffix(".json"), json.dumps(figures, indent=1) + "\n")
    part.replace(run)
    shutil.rmtree(working)


@dataclass(frozen=True)
class MultifieldBm25:
    """BM25 over title and text as two fields, as BEIR's own, and over the queries that docT5query wrote, if any."""

    corpus: Path
    most: int | None = None
    k1: float = bm25.K1
    b: float = bm25.B

    def index(self, passages: Passages, folder: Path) -> None:
        """Index the corpus (its first ``most`` documents), as titles and texts are already joined in ``passages``."""
        rows = islice(read_fields(self.corpus, ("text", "title", "queries")), self.most)
        documents = with_count(rows, "indexing passages", "passages")
        bm25.index_fields(documents, folder)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages with the greatest sum of both fields' scores."""
        pairs = queries.select("query_id", "text").iter_rows()
        for query, hits in bm25.search(pairs, folder, depth, k1=self.k1, b=self.b, fields=bm25.FIELDS):
            yield query, best_first(hits)
