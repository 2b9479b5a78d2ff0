"""A cell's training in several processes of one machine, one a GPU; torchrun starts them and ends them together."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from baselines import systems
from baselines.grid.cell import Cell
from baselines.grid.journal import Report
from baselines.training.trainer import StepTooLargeError, free_memory, rank, share_of
from eval_kit.errors import UserError, in_one_sentence


def train(cell: Cell, processes: int, progress: Report) -> dict[str, Any]:
    """Train as the cell's system does alone, each of so many processes on its share of every batch.

    Args:
        cell: which this process has.
        processes: how many; each takes one of the GPUs that are visible here, if there are any.
        progress: see :func:`baselines.training.trainer.fit`.

    Returns:
        What the training returns in the first process.

    Raises:
        UserError: the processes cannot share the cell's batches; a process failed, and so all were ended; the first
            sentence that one of them said.
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
                failed = error
            except SignalException as signal:
                sys.exit(128 + signal.sigval)  # who ended this process wants no more of it
            else:
                return facts
        _, first = failed.get_first_failure()
        if first.exitcode < 0 or not errors:  # what the others then said is only that it was gone
            raise UserError(f"{cell.name.file}: one of {processes} processes was ended: {first.message}") from failed
        if not any(isinstance(error, StepTooLargeError) for error in errors):
            raise errors[0] from failed


def in_this_process(cell: Cell, connection: Connection) -> dict[str, Any]:
    """What each process does: the training, with its progress (the first one's) and its error sent on."""
    try:
        return systems.system(cell.name.system).train(cell, connection.send if rank() == 0 else None)
    except Exception as error:
        connection.send(
            StepTooLargeError() if isinstance(error, StepTooLargeError) else UserError(in_one_sentence(error))
        )
        raise


@contextmanager
def _hearing(progress: Report) -> Iterator[tuple[Connection, list[Exception]]]:
    """A connection for the processes to send their progress and errors to, and the errors that came.

    An error of ``progress`` (it writes to the disk) is raised when the training has ended.
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
