"""Encode passages by Ray Data: a pool of actors, each with the model and its own GPU.

A block of the data set is one shard of :mod:`eval_kit.search.shards`. The results come back in order and are written by
one process, so the folder is the same as from that process alone, and what a killed run has written is kept.
"""

import copy
import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from baselines import systems
from baselines.cell import Cell
from baselines.environment import environment
from baselines.grid.work import attempt, index
from baselines.training.queries import passage_texts
from eval_kit.errors import UserError
from eval_kit.search import shards
from eval_kit.search.retriever import Passages


def encode_cell(cell: Cell, gpus: float, threads: int) -> str | None:
    """Encode the passages of a cell whose model is trained."""

    def work(cell: Cell) -> None:
        retriever = systems.system(cell.name.system).retriever(cell.model, cell.options.as_json())
        folder = systems.index_folder(cell)
        index(cell, lambda: encode_with_ray(retriever, passage_texts(cell), folder, gpus, threads))

    return attempt(cell, work)


def encode_with_ray(retriever: Any, passages: Passages, folder: Path, gpus: float, threads: int) -> None:
    """Encode passages into the arrays that the retriever's ``index`` would make.

    All machines see the retriever's model; the passages lie in Ray's object store. ``gpus``, which may be 0, and
    ``threads`` are those of each actor.
    """
    import ray

    small = copy.copy(retriever)
    vars(small).pop("_model", None)  # each actor loads it
    spread = partial(_by_actors, small, gpus, threads)
    try:
        shards.write(passages, folder, retriever.encode_passages, retriever.identity_in(folder), spread=spread)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines()
        # Ray says more below the error
        _, _, why = next((line for line in lines if "UserError: " in line), lines[-1]).rpartition("UserError: ")
        raise UserError("The Ray cluster could not encode the passages", why) from error


def _by_actors(
    retriever: Any, gpus: float, threads: int, _: shards.Encode, texts: Iterable[list[str]]
) -> Iterator[shards.Arrays]:
    """The arrays of each list of texts, in order, by actors with the retriever."""
    import pyarrow as pa
    import ray.data

    cluster: Any = ray
    blocks = [cluster.put(pa.table({"texts": [part]})) for part in texts]
    resources = cluster.cluster_resources()
    most = int(resources.get("GPU", 0) / gpus if gpus else resources["CPU"] / threads)
    cluster.data.DataContext.get_current().execution_options.preserve_order = True
    results = cluster.data.from_arrow_refs(blocks).map_batches(
        _Actor,
        fn_constructor_args=(retriever,),
        batch_size=1,
        batch_format="pyarrow",
        concurrency=(1, max(1, min(most, len(blocks)))),
        num_gpus=gpus,
        num_cpus=threads,
        runtime_env={"env_vars": environment(threads, gpus)},
    )
    for row in results.iter_rows():
        yield pickle.loads(row["arrays"])


class _Actor:
    """A process with the model, loaded once."""

    def __init__(self, retriever: Any) -> None:
        self._retriever = retriever

    def __call__(self, block: Any) -> Any:
        """Encode the texts of one row."""
        import pyarrow as pa

        arrays = self._retriever.encode_passages(block["texts"][0].as_py())
        return pa.table({"arrays": [pickle.dumps(arrays)]})
