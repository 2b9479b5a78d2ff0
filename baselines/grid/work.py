"""One cell from beginning to end: train, index, search, score. Finished steps are kept, whatever happens next."""

import contextlib
import gc
import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from baselines import systems
from baselines.cell import Cell
from baselines.grid.documents import conclusion, describe, write_card
from baselines.grid.encodings import keep_encodings
from baselines.options import Trained
from baselines.training.queries import passage_texts
from eval_kit.errors import UserError, in_one_sentence
from eval_kit.files import atomic
from eval_kit.protocols.scoring import score
from eval_kit.runs import contamination, writer
from eval_kit.search.encoders import free_memory
from eval_kit.search.passages import passages
from eval_kit.search.retriever import Passages, Retriever, lines

QUERIES_AT_ONCE = 4_000
"""Queries whose part of the run is written before the next ones are searched: what a kill loses.

No experiment chose it; another number may change the last digits of scores, as a batch has other neighbours.
"""


def train(cell: Cell) -> dict[str, Any]:
    """Train the cell's model, unless it exists; facts about the training."""
    if cell.start is not None and (failure := attempt(cell.beginning)):
        raise UserError(f"The cell of {cell.beginning.name.file} failed, and this one starts from it", failure)
    with _timed(cell, "training"):
        return systems.system(cell.name.system).train(cell)


def index(cell: Cell, make: Callable[[], None]) -> None:
    """Make the cell's index with ``make``; where several cells share one, the others wait."""
    with _timed(cell, "indexing"), atomic.lock(systems.index_folder(cell)):
        make()


def whole(cell: Cell) -> None:
    """Do what is left of a cell."""
    facts = train(cell)
    if not cell.is_searched:
        retriever = systems.system(cell.name.system).retriever(cell.model, cell.options.as_json())
        index(cell, lambda: retriever.index(_passages(cell), systems.index_folder(cell)))
        with _timed(cell, "searching"):
            keep_encodings(cell, retriever)
            _search(cell, retriever)
    with _timed(cell, "scoring"):
        scores = score([cell.run], cell.release, allow_missing=True)  # our own run is complete
    finished_cell = conclusion(cell, facts, scores)
    if isinstance(cell.options, Trained):
        write_card(cell, finished_cell)
    atomic.write_text(cell.folder / "done.json", json.dumps(finished_cell.as_json(), indent=1) + "\n")


def attempt(cell: Cell, work: Callable[[Cell], Any] = whole, wait: bool = True) -> str | None:
    """Do some work on a cell.

    An error ends only this cell: its traceback, then one sentence about it, stay in ``error.txt`` until the next
    attempt. Of a finished cell the files are linked into the grid's folders, and nothing else is done. ``wait`` for
    another process that has the cell; one that is killed has it no longer.

    Returns:
        The sentence; None where the work is done.

    Raises:
        Timeout: of filelock: another process has the cell.
    """
    describe(cell)
    error_file = cell.folder / "error.txt"
    with atomic.file_lock(cell.folder / ".lock", wait=wait):
        error_file.unlink(missing_ok=True)
        try:
            if not cell.is_finished:
                work(cell)
            if cell.is_finished:
                _publish(cell)
                shutil.rmtree(cell.own_index, ignore_errors=True)  # not before done.json, which has its size
        except Exception as error:
            sentence = in_one_sentence(error)
            with contextlib.suppress(OSError):  # the disk may be full
                error_file.write_text(f"{traceback.format_exc()}\n{sentence}\n", encoding="utf-8")
            return sentence
        finally:
            gc.collect()  # a trainer and its model hold each other
            free_memory()
    return None


@contextlib.contextmanager
def _timed(cell: Cell, step: str) -> Iterator[None]:
    """Add what a step takes to the cell's seconds, however it ends but by a kill."""
    begun = time.monotonic()
    try:
        yield
    finally:
        seconds = cell.seconds
        seconds[step] = seconds.get(step, 0.0) + time.monotonic() - begun
        with contextlib.suppress(OSError, UserError):  # the disk may be full, which the step itself says
            atomic.write_text(cell.folder / "seconds.json", json.dumps(seconds) + "\n")


def _search(cell: Cell, retriever: Retriever) -> None:
    """Write the cell's runs in parts, so that a killed search resumes after the last finished one.

    The parts do not depend on where it was killed: a query's neighbours in a batch can change its last digits.
    """
    searches = {run: queries for run, queries in cell.searches().items() if not run.is_file()}
    for run, queries in searches.items():
        parts = []
        for start in range(0, queries.height, QUERIES_AT_ONCE):
            part = queries[start : start + QUERIES_AT_ONCE]
            parts.append(cell.folder / "parts" / f"{run.stem}.{start:09d}.trec")
            if not parts[-1].is_file():
                hits = retriever.search(part, systems.index_folder(cell), cell.options.depth)
                writer.write(lines(hits), parts[-1], tag=cell.name.system)
        _join(parts, run)
    shutil.rmtree(cell.folder / "parts")


def retract(cell: Cell) -> None:
    """Take files of that name but other options out of the grid's folders, lest a grid half done be a mixture."""
    if cell.is_finished:
        return
    vectors = {file: cell.published_run.with_name(file.name) for file in cell.query_vectors}
    for output, target in (cell.outputs | vectors).items():
        if target.exists() and not (output.exists() and target.samefile(output)):
            target.unlink()


def _publish(cell: Cell) -> None:
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


def _passages(cell: Cell) -> Passages:
    """The passages of a cell; a neural system reads the texts that the grid stores."""
    return passage_texts(cell) if isinstance(cell.options, Trained) else passages(cell.release)


def _join(parts: Iterable[Path], run: Path) -> None:
    with atomic.whole(run) as whole, whole.open("wb") as file:
        for part in parts:
            with part.open("rb") as content:
                shutil.copyfileobj(content, file, 1 << 20)
