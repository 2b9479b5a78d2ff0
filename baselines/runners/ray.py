"""Run cells as tasks of a Ray cluster, which handles scheduling, GPUs and retries.

All machines must see the grid's folder and the release under the same path.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from baselines.cell import Cell
from baselines.environment import environment
from baselines.grid.grid import prepare
from baselines.grid.work import attempt, train
from baselines.options import Monobert, Trained
from baselines.runners.ray_encoding import encode_cell
from eval_kit.errors import UserError, first_line, in_one_sentence
from eval_kit.search.passages import how_many

_RETRIES = 3
"""How often a task is restarted, on another machine, when its own dies; it resumes from what is on disk."""
MANY_PASSAGES = 1_000_000
"""From this number on, a cell's passages are encoded on all free GPUs, not only on the cell's own."""
_HANDLERS = {"RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1"}
"""Makes Ray leave the SIGSEGV handler to a JVM in its process, which depends on it (ray-project/ray#36415)."""


def run(cells: Sequence[Cell], threads: int, many_passages: int = MANY_PASSAGES) -> Iterator[tuple[Cell, str | None]]:
    """Do what is left of a grid, as :func:`baselines.grid.grid.run`, as many cells at once as the cluster holds.

    The cluster is the one that ``RAY_ADDRESS`` names or that this machine belongs to; without one, this machine.

    From ``many_passages`` on, passages are encoded by Ray Data.
    """
    ray = connect()
    prepare(cells)
    gpu = 1 if ray.cluster_resources().get("GPU") else 0
    spread = bool(cells) and (how_many(cells[0].release) or 0) >= many_passages

    def begin(cell: Cell, step: Any, cpus: int, gpus: int, *arguments: int) -> Any:
        task = ray.remote(step).options(
            name=cell.name.file,
            num_cpus=cpus,
            num_gpus=gpus,
            max_retries=_RETRIES,
            runtime_env={"env_vars": environment(threads, gpus) | _HANDLERS},
        )
        return task.remote(cell.portable(), *arguments)

    def steps(cell: Cell) -> list[Any]:
        """Functions that each begin one task of the cell, in order."""
        if not isinstance(cell.options, Trained):
            return [partial(begin, cell, attempt, threads, 0)]
        whole = partial(begin, cell, attempt, threads, gpu)
        if not spread or isinstance(cell.options, Monobert):
            return [whole]
        training = partial(begin, cell, train_cell, threads, gpu)
        return [training, partial(begin, cell, encode_cell, 0, 0, gpu, threads), whole]

    yield from ((cell, attempt(cell)) for cell in cells if cell.is_finished)
    tasks = {(todo := steps(cell)).pop(0)(): (cell, todo) for cell in cells if not cell.is_finished}
    while tasks:
        [ready], _ = ray.wait(list(tasks), num_returns=1)
        cell, todo = tasks.pop(ready)
        try:
            failure: str | None = ray.get(ready)
        except ray.exceptions.RayError as error:
            failure = in_one_sentence(error)
            (cell.folder / "error.txt").write_text(f"{error}\n{failure}\n", encoding="utf-8")
        if todo and failure is None:
            tasks[todo.pop(0)()] = (cell, todo)
        else:
            yield cell, failure


def train_cell(cell: Cell) -> str | None:
    """Train the cell: the stage that needs a GPU of its own."""
    return attempt(cell, train)


def connect() -> Any:
    """The module ``ray``, connected.

    A process may start Java (:mod:`eval_kit.search.lucene`) after this, but not before: the last SIGSEGV handler set
    counts, and Ray begins by setting Python's.
    """
    os.environ.update(_HANDLERS)  # read when Ray is imported
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is not installed", do="Install it: pip install '.[cluster]'") from error
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            why = first_line(error).removesuffix(".")
            raise UserError(
                "Could not reach the Ray cluster", why, "Start the cluster, or unset RAY_ADDRESS"
            ) from error
    return ray
