"""Run cells in processes on this machine, which share its GPUs if there are any."""

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from baselines.cells.cell import Cell
from baselines.cells.journal import Journal, lock
from baselines.grid.stages import Outcome, run_cell
from eval_kit.search.gpus import gpus
from eval_kit.search.processes import cores, end_with_parent

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
)


def environment(threads: int, gpus: float | None = None) -> dict[str, str]:
    """Environment variables for a process with that number of threads; libraries read them on import.

    With 0 ``gpus`` it sees none: Ray would show it all of its machine's.

    Batches differ in length; expandable segments keep them from fragmenting a GPU's memory.
    """
    others = {
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if gpus == 0:
        others["CUDA_VISIBLE_DEVICES"] = ""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads)) | others


def run(cells: Sequence[Cell], workers: int, threads: int) -> Iterator[Outcome]:
    """Attempt every cell once; if a worker dies (out of memory, say), its cell has failed and the worker is replaced.

    Args:
        cells: to do, in this order.
        workers: how many cells run at once; the GPUs of this machine are assigned to them in turn.
        threads: of each worker.
    """
    waiting = list(reversed(cells))
    devices = gpus()
    crew = [_hire(number, devices, threads) for number in range(min(workers, len(cells)))]
    try:
        while waiting or any(worker.cell for worker in crew):
            for worker in crew:
                if waiting and worker.cell is None:
                    worker.cell = waiting.pop()
                    worker.connection.send(worker.cell.portable())
            busy = {worker.connection: worker for worker in crew if worker.cell}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                outcome = _outcome(worker)
                if not worker.process.is_alive():
                    crew[crew.index(worker)] = _hire(worker.number, devices, threads)
                worker.cell = None
                yield outcome
    finally:
        for worker in crew:
            worker.connection.close()
            if worker.cell is not None:
                worker.process.terminate()
        for worker in crew:
            worker.process.join()


def most_workers(threads: int) -> int:
    """How many workers fit on this machine: one per GPU, else per ``threads`` CPUs."""
    return max(1, len(gpus()) or cores() // threads)


@dataclass
class _Worker:
    number: int
    process: BaseProcess
    connection: Connection
    cell: Cell | None = None


def _hire(number: int, devices: Sequence[str], threads: int) -> _Worker:
    variables = environment(threads)
    if devices:
        variables["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    spawning = multiprocessing.get_context("spawn")
    connection, of_worker = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(of_worker,))
    with _environment(variables):
        process.start()
    of_worker.close()
    return _Worker(number, process, connection)


def _outcome(worker: _Worker) -> Outcome:
    assert worker.cell is not None
    try:
        outcome: Outcome = worker.connection.recv()
        return outcome
    except EOFError:
        worker.process.join()
        code = worker.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        reason = f"its process {how}; see {worker.cell.folder / 'log.txt'}"
        with lock(worker.cell.folder) as free:
            if free:
                Journal(worker.cell.folder).write("failed", reason=reason)
        return Outcome(worker.cell.name, "failed", reason)


def _serve(connection: Connection) -> None:
    """Run cells until the other end is closed; what libraries print goes to the cell's ``log.txt``."""
    end_with_parent()
    while True:
        try:
            cell: Cell = connection.recv()
        except EOFError:
            return
        with (cell.folder / "log.txt").open("ab", buffering=0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        connection.send(run_cell(cell))


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that a process started meanwhile inherits: its libraries read them before any code of ours runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
