"""Passage texts on the disk, to be had again by id: an Arrow file, memory-mapped."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eval_kit.errors import UserError
from eval_kit.files import atomic
from search.retriever import Passages

BATCH = 16_384


def write(passages: Passages, path: Path) -> str:
    """Write ``(passage id, text)`` pairs to an Arrow file, whole or not at all.

    Returns:
        The sha256 of ids and texts in their order.

    Raises:
        UserError: the disk is full.
    """
    import pyarrow as pa

    schema = pa.schema([("id", pa.large_string()), ("text", pa.large_string())])
    digest = hashlib.sha256()
    try:
        with atomic.whole(path) as part, part.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in itertools.batched(passages, BATCH):
                ids, texts = [one for one, _ in batch], [text for _, text in batch]
                digest.update("\0".join([*ids, *texts, ""]).encode())
                writer.write_batch(pa.record_batch([pa.array(ids), pa.array(texts)], ["id", "text"]).cast(schema))
    except OSError as error:
        raise UserError(f"{path}: the passages cannot be kept: {error.strerror or error}") from error
    return digest.hexdigest()


@dataclass(frozen=True)
class PassageTexts:
    """Texts by passage id."""

    path: Path

    def of(self, ids: Sequence[str]) -> list[str]:
        """The texts of the passages, in the order of ``ids``; every id must be one of the file's."""
        rows = self._order[np.searchsorted(self._sorted, np.array([one.encode() for one in ids]))]
        texts: list[str] = self._table["text"].take(rows).to_pylist()
        return texts

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """``(passage id, text)`` pairs in the order of the file."""
        for batch in self._table.to_batches():
            yield from zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True)

    @cached_property
    def _table(self) -> Any:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as file:
            return pa.ipc.open_file(file).read_all()

    @cached_property
    def _ids(self) -> Any:
        return np.array([one.encode() for one in self._table["id"].to_pylist()])

    @cached_property
    def _order(self) -> Any:
        return np.argsort(self._ids, kind="stable")

    @cached_property
    def _sorted(self) -> Any:
        return self._ids[self._order]
