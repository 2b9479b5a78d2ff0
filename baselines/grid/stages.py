"""One cell from beginning to end: train, index, search, score. Finished stages are kept, whatever happens next."""

import contextlib
import json
import shutil
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from baselines import systems
from baselines.cells.cell import Cell
from baselines.cells.journal import Journal, Report, lock
from baselines.grid.documents import conclusion, describe, write_card
from baselines.grid.encodings import keep_encodings
from baselines.options import Trained
from baselines.training.queries import passage_texts
from eval_kit.errors import UserError, in_one_sentence
from eval_kit.files import atomic
from eval_kit.protocols.scoring import score
from eval_kit.runs import contamination, names, writer
from eval_kit.search.passages import passages
from eval_kit.search.retriever import Passages, Retriever, lines
from eval_kit.search.shards import index_bytes

QUERIES_AT_ONCE = 4_000
"""Queries whose part of the run is written to disk before the next ones are searched."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a cell ended: ``done`` (the work requested), ``failed`` for a ``reason``, or ``in use``."""

    name: names.RunName
    state: str
    reason: str | None = None


def run_cell(cell: Cell) -> Outcome:
    """Do what is left of a cell; its run is then also in ``runs``."""
    return attempt(cell, _everything)


def attempt(cell: Cell, work: Callable[[Cell, Journal], None]) -> Outcome:
    """Do some work on a cell, unless another process has it.

    An error ends only this cell: one sentence about it goes to ``state.json``, its traceback to ``traceback.txt``.
    """
    describe(cell)
    with lock(cell.folder) as free:
        if not free:
            return Outcome(cell.name, "in use")
        if not cell.is_finished:
            journal = Journal(cell.folder)
            trace = cell.folder / "traceback.txt"
            trace.unlink(missing_ok=True)
            try:
                work(cell, journal)
            except Exception as error:
                reason = in_one_sentence(error)
                with contextlib.suppress(OSError, UserError):  # the disk may be full
                    journal.write("failed", reason=reason)
                    trace.write_text(traceback.format_exc(), encoding="utf-8")
                return Outcome(cell.name, "failed", reason)
    return Outcome(cell.name, "done")


def train(cell: Cell, journal: Journal) -> None:
    """Train the cell's model, unless it exists; a killed training resumes from its last checkpoint."""
    previous = journal.facts.get("training")
    if previous is None or (previous and not cell.model.exists()):
        with journal.stage("training") as report:
            journal.facts["training"] = systems.system(cell.name.system).train(cell, report)
        shutil.rmtree(cell.folder / "training", ignore_errors=True)


def index(cell: Cell, journal: Journal, make: Callable[[], None]) -> None:
    """Make the cell's index with ``make``; where several cells share one, the others wait."""
    folder = systems.index_folder(cell)
    with journal.stage("indexing"), atomic.lock(folder):
        make()
        journal.facts["indexing"] = {"bytes": index_bytes(folder)}


def search(cell: Cell, retriever: Retriever, report: Report) -> None:
    """Write the cell's runs in parts, so that a killed search resumes after the last finished one.

    The parts do not depend on where it was killed: a query's neighbours in a batch can change its last digits.
    """
    searches = {run: queries for run, queries in cell.searches().items() if not run.is_file()}
    steps = sum(queries.height for queries in searches.values())
    step = 0
    for run, queries in searches.items():
        parts = []
        for start in range(0, queries.height, QUERIES_AT_ONCE):
            part = queries[start : start + QUERIES_AT_ONCE]
            parts.append(cell.folder / "parts" / f"{run.stem}.{start:09d}.trec")
            if not parts[-1].is_file():
                hits = retriever.search(part, systems.index_folder(cell), cell.options.depth)
                writer.write(lines(hits), parts[-1], tag=cell.name.system)
            step += part.height
            report({"step": step, "steps": steps})
        _join(parts, run)
    shutil.rmtree(cell.folder / "parts")


def publish(cell: Cell) -> None:
    """Link the finished cell's outputs into the grid's folders (or copy them, where links are impossible).

    A file beside each run declares the model's training data.
    """
    training_data = cell.training_data()
    batch = cell.options.batch_size if isinstance(cell.options, Trained) else None
    for output, target in cell.outputs.items():
        target.parent.mkdir(exist_ok=True)
        if output.suffix == cell.run.suffix:
            contamination.declare(target, training_data, batch)
        if target.exists() and target.samefile(output):
            continue
        with atomic.whole(target) as part:
            atomic.link_or_copy(output, part)


def retract(cell: Cell) -> None:
    """Take files of that name but other options out of the grid's folders, lest a grid half done be a mixture."""
    if cell.is_finished:
        return
    vectors = {file: cell.published_run.with_name(file.name) for file in cell.query_vectors}
    for output, target in (cell.outputs | vectors).items():
        if target.exists() and not (output.exists() and target.samefile(output)):
            target.unlink()


def _everything(cell: Cell, journal: Journal) -> None:
    train(cell, journal)
    if not cell.is_searched:
        retriever = systems.system(cell.name.system).retriever(cell.model, cell.options.as_json())
        index(cell, journal, lambda: retriever.index(_passages(cell), systems.index_folder(cell)))
        with journal.stage("searching") as report:
            keep_encodings(cell, retriever)
            search(cell, retriever, report)
    with journal.stage("scoring"):
        scores = score([cell.run], cell.release, allow_missing=True)  # our own run is complete
    finished_cell = conclusion(cell, journal, scores)
    if isinstance(cell.options, Trained):
        write_card(cell, finished_cell)
    publish(cell)
    shutil.rmtree(cell.own_index, ignore_errors=True)
    journal.write("finished")
    atomic.write_text(cell.folder / "done.json", json.dumps(finished_cell.as_json(), indent=1) + "\n")


def _passages(cell: Cell) -> Passages:
    """The passages of a cell; a neural system reads the texts that the grid stores."""
    return passage_texts(cell) if isinstance(cell.options, Trained) else passages(cell.release)


def _join(parts: Iterable[Path], run: Path) -> None:
    with atomic.whole(run) as whole, whole.open("wb") as file:
        for part in parts:
            with part.open("rb") as content:
                shutil.copyfileobj(content, file, 1 << 20)
