"""Search the datasets of BEIR with several systems (Thakur et al. 2021, §4); a finished run is not searched again."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from baselines import architectures, checkpoints
from baselines.search import latency_ms, make_run
from baselines.systems.bm25 import Bm25
from eval_kit.errors import UserError
from eval_kit.files import atomic, strict_json
from eval_kit.files.beir import judged_queries, read_corpus
from eval_kit.measures.beir import dataset_name, split_of
from eval_kit.release import beir_suite
from eval_kit.runs import contamination
from search.retriever import Retriever

BM25 = "bm25"


def folders(parent: Path, names: Sequence[str]) -> list[Path]:
    """The folders of datasets below ``parent``, twelve for CQADupStack; of all of BEIR's that are there by default.

    Raises:
        UserError: one of them is not there, or none is.
    """
    chosen = names or [name for name in beir_suite.datasets() if (parent / name).is_dir()]
    if not chosen:
        raise UserError(f"{parent}: holds no dataset of BEIR; download one with python -m builder beir download")
    known = beir_suite.datasets()
    parts = [parent / name / part for name in chosen for part in (known[name].folders if name in known else []) or [""]]
    if missing := next((part for part in parts if not part.is_dir()), None):
        raise UserError(f"{missing}: there is no such folder; python -m builder beir download fetches BEIR's datasets")
    return parts


def search(
    systems: Sequence[str], datasets: Sequence[Path], out: Path, depth: int, progress: Console
) -> dict[str, list[Path]]:
    """Each system's runs, one a dataset: ``<system>.<dataset>.trec`` in ``out``; those that are there stay.

    Beside each run lies what was measured, ``<system>.<dataset>.json``; its index is removed.

    Args:
        systems: ``bm25``, names of checkpoints, or any name whose runs are all there.
        datasets: folders in BEIR's format.
        out: the runs' folder.
        depth: passages a query.
        progress: where to say what is being done.

    Raises:
        UserError: a system of no known name that lacks a run; a folder that is not as BEIR's.
    """
    runs = {system: [out / f"{system}.{dataset_name(folder)}.trec" for folder in datasets] for system in systems}
    for system, files in runs.items():
        missing = {run: folder for run, folder in zip(files, datasets, strict=True) if not run.is_file()}
        if missing:
            _search(system, missing, depth, progress)
    return runs


def measured(runs: Mapping[str, Sequence[Path]]) -> dict[str, dict[str, Any]]:
    """What was measured when a run was searched, by the run's name; nothing of runs from elsewhere."""
    files = [run.with_suffix(".json") for of_system in runs.values() for run in of_system]
    return {file.stem: strict_json.read(file) for file in files if file.is_file()}


def published_as() -> dict[str, str]:
    """The paper's name of each checkpoint that has a row in Table 2."""
    names = {}
    for entry in checkpoints.load().values():
        for row in entry.rows:
            if row["table"] == "beir2021-table2":
                names[entry.name] = row["system"]
    return names


def _search(system: str, missing: Mapping[Path, Path], depth: int, progress: Console) -> None:
    try:
        retriever, training_data = _retriever(system)
    except KeyError:
        raise UserError(
            f"{system} is neither bm25 nor a checkpoint ({', '.join(checkpoints.load())}), and the run "
            f"{next(iter(missing))} is not there"
        ) from None
    for run, folder in missing.items():
        queries = judged_queries(folder, split_of(folder))
        index = run.with_suffix(".index")
        corpus = read_corpus(folder / "corpus.jsonl")
        figures = make_run(retriever, corpus, queries, run, index, progress, depth)
        contamination.declare(run, training_data)
        figures["latency_ms"] = latency_ms(retriever, queries, index, depth)
        atomic.write_text(run.with_suffix(".json"), json.dumps(figures, indent=1) + "\n")
        shutil.rmtree(index)


def _retriever(system: str) -> tuple[Retriever, list[str]]:
    """What searches, and what it was trained on.

    Raises:
        KeyError: neither BM25 nor a checkpoint has that name.
    """
    if system == BM25:
        return Bm25(), []
    entry = checkpoints.load()[system]
    return architectures.retriever(entry.architecture, entry.model, entry.options), entry.training_data
