"""Encode passages by Ray Data: a pool of actors, each with the model and its own GPU.

A block of the data set is one shard of :mod:`search.shards`, and each actor writes its shards where they
belong. So the folder is the same as from one process, and the shards that a killed run finished are kept.
"""

import itertools
import pickle
from pathlib import Path
from typing import Any

from baselines import systems
from baselines.architectures.devices import unloaded
from baselines.grid.cell import Cell
from baselines.grid.journal import Journal
from baselines.grid.stages import Outcome, attempt, index
from baselines.runners.local import environment
from baselines.training.queries import passage_texts
from eval_kit.errors import UserError
from search import shards
from search.gpus import refuse_unusable_gpus
from search.retriever import Passages
from search.texts import PassageTexts


def encode_cell(cell: Cell, gpus: float, threads: int) -> Outcome:
    """Encode the passages of a cell whose model is trained."""

    def work(cell: Cell, journal: Journal) -> None:
        retriever = systems.system(cell.name.system).retriever(cell.model, cell.options)
        folder = systems.index_folder(cell)
        index(cell, journal, lambda: encode_with_ray(retriever, passage_texts(cell), folder, gpus, threads))

    return attempt(cell, work)


def encode_with_ray(retriever: Any, passages: Passages, folder: Path, gpus: float, threads: int) -> None:
    """Encode passages into the shards that the retriever's ``index`` would make.

    Args:
        retriever: of an architecture that encodes passages; all machines see its model.
        passages: they lie in Ray's object store, as the model reads them, until they are encoded; all machines must
            see the folder of :class:`PassageTexts`.
        folder: of the shards, seen by all machines.
        gpus: of each actor; may be 0.
        threads: of each actor.

    Raises:
        UserError: an actor ended, for instance because torch cannot use its GPU.
    """
    import pyarrow as pa
    import ray.data

    cluster: Any = ray
    folder.mkdir(parents=True, exist_ok=True)
    blocks = []
    for number, batch in enumerate(itertools.batched(retriever.as_read(passages), shards.SHARD)):
        blocks.append(cluster.put(pa.table({"shard": [number], "passages": [pickle.dumps(batch)]})))
    resources = cluster.cluster_resources()
    most = int(resources.get("GPU", 0) / gpus if gpus else resources["CPU"] / threads)
    try:
        cluster.data.from_arrow_refs(blocks).map_batches(
            _Encoder,
            fn_constructor_args=(folder, unloaded(retriever), passages if isinstance(passages, PassageTexts) else None),
            batch_size=1,
            batch_format="pyarrow",
            concurrency=(1, max(1, min(most, len(blocks)))),
            num_gpus=gpus,
            num_cpus=threads,
            runtime_env={"env_vars": environment(threads)},
        ).materialize()
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()[-1].removeprefix("eval_kit.errors.UserError: ")
        raise UserError(f"the cluster cannot encode the passages: {why}") from error
    shards.finish(folder, len(blocks))


class _Encoder:
    """An actor: the model, loaded once."""

    def __init__(self, folder: Path, retriever: Any, texts: PassageTexts | None) -> None:
        refuse_unusable_gpus()
        self._folder, self._retriever = folder, retriever
        if texts is not None:
            retriever.as_read(texts)  # its model takes token ids from now on

    def __call__(self, block: Any) -> Any:
        """Encode one shard, unless it exists."""
        number, batch = block["shard"][0].as_py(), pickle.loads(block["passages"][0].as_py())
        encode, identity = self._retriever.encode_passages, self._retriever.identity
        shards.write_shard(self._folder, number, batch, encode, identity)
        return block.select(["shard"])
