"""A cell's training in several processes on one machine, one per GPU; torchrun starts and ends them together."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from baselines import systems
from baselines.cells.cell import Cell
from baselines.cells.journal import Report
from baselines.training.trainer import StepTooLargeError, rank, share_of
from eval_kit.errors import UserError, in_one_sentence
from eval_kit.search.encoders import free_memory


def train(cell: Cell, processes: int, progress: Report) -> dict[str, Any]:
    """Train as the cell's system does in one process, but each process on its share of every batch.

    Args:
        cell: that this process has locked.
        processes: how many; each takes one of the GPUs visible here, if there are any.
        progress: see :func:`baselines.training.trainer.fit`.

    Returns:
        What the training returns in the first process.

    Raises:
        UserError: the processes cannot share the cell's batches; or a process failed and all were ended, with the first
            error message that arrived.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    share_of(cell, processes)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
    )
    free_memory()
    while True:
        with _hearing(progress) as (connection, errors):
            try:
                facts: dict[str, Any] = elastic_launch(config, in_this_process)(cell.portable(), connection)[0]
            except ChildFailedError as error:
                failure = error
            except SignalException as signal:
                sys.exit(128 + signal.sigval)  # this process was told to end
            else:
                return facts
        _, first = failure.get_first_failure()
        if first.exitcode < 0 or not errors:  # errors of the others only say that it was gone
            raise UserError(f"{cell.name.file}: one of {processes} processes was ended: {first.message}") from failure
        if not any(isinstance(error, StepTooLargeError) for error in errors):
            raise errors[0] from failure


def in_this_process(cell: Cell, connection: Connection) -> dict[str, Any]:
    """Train in one of the processes; its error, and the first process's progress, are sent to ``connection``."""
    try:
        return systems.system(cell.name.system).train(cell, connection.send if rank() == 0 else None)
    except Exception as error:
        connection.send(
            StepTooLargeError() if isinstance(error, StepTooLargeError) else UserError(in_one_sentence(error))
        )
        raise


@contextmanager
def _hearing(progress: Report) -> Iterator[tuple[Connection, list[Exception]]]:
    """A connection to which the processes send their progress and errors, and the list of errors received.

    An error of ``progress`` (it writes to disk) is raised when the training has ended.
    """
    from torch.multiprocessing import Pipe

    receiving, sending = Pipe(duplex=False)
    errors: list[Exception] = []
    of_progress: list[Exception] = []

    def listen() -> None:
        while (message := receiving.recv()) is not None:
            if isinstance(message, Exception):
                errors.append(message)
            elif not of_progress:
                try:
                    progress(message)
                except Exception as error:
                    of_progress.append(error)

    listener = Thread(target=listen)
    listener.start()
    try:
        yield sending, errors
    finally:
        sending.send(None)
        listener.join()
    if of_progress:
        raise of_progress[0]
