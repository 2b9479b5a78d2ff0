"""Passage texts on the disk, looked up by passage id.

A folder of :mod:`eval_kit.search.shards` whose one array is the UTF-8 bytes of all texts, with the passage ids in
ascending order (``sorted.npy``) and their rows (``order.npy``) beside it. All are memory maps, so that processes share
them, and looking a text up reads nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from eval_kit.errors import UserError
from eval_kit.search import shards
from eval_kit.search.arrays import write_array
from eval_kit.search.retriever import Passages

_IDENTITY = "texts"


def write(passages: Passages, folder: Path) -> "PassageTexts":
    """Keep ``(passage id, text)`` pairs in ``folder``, unless they are there. A second process waits for the first."""
    index = shards.write(passages, folder, _bytes, _IDENTITY, "reading passages")
    with shards.building(folder, "order", index.key, ["order.npy", "sorted.npy"]) as missing:
        if missing:
            order = np.argsort(index.ids, kind="stable")
            write_array(folder / "order.npy", order)
            write_array(folder / "sorted.npy", index.ids[order])
    return PassageTexts(folder)


def is_written(folder: Path) -> bool:
    """Whether ``folder`` holds all texts of some passages."""
    return (folder / "order.json").exists()


@dataclass(frozen=True)
class PassageTexts:
    """Texts by passage id, in a folder that :func:`write` made."""

    folder: Path

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """``(passage id, text)`` pairs in the order of the rows."""
        for start, arrays in self._shards:
            ids = self._shards.ids[start : start + len(arrays["lengths"])]
            ends = np.cumsum(arrays["lengths"]).tolist()
            text = arrays["text"].tobytes()
            for passage_id, first, last in zip(ids.tolist(), [0, *ends], ends, strict=False):
                yield passage_id.decode(), text[first:last].decode()

    @property
    def key(self) -> str:
        """The sha256 of ids and texts in their order."""
        return self._shards.key

    def of(self, ids: Sequence[str]) -> list[str]:
        """The texts of the passages, in the order of ``ids``."""
        wanted_ids = np.array([passage_id.encode() for passage_id in ids], np.bytes_)
        all_ids = self._shards.array("sorted")
        positions = np.minimum(np.searchsorted(all_ids, wanted_ids.astype(all_ids.dtype)), len(self) - 1)
        absent = all_ids[positions] != wanted_ids
        if absent.any():
            raise UserError(f"{self.folder} has no passage {ids[int(absent.argmax())]}")
        rows = self._shards.array("order")[positions]
        text, offsets = memoryview(self._shards.array("text")), self._shards.offsets
        ends = zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True)
        return [str(text[first:last], "utf-8") for first, last in ends]

    def __reduce__(self) -> tuple[type["PassageTexts"], tuple[Path]]:
        """Another process opens the files again, instead of receiving their content."""
        return PassageTexts, (self.folder,)

    @cached_property
    def _shards(self) -> shards.Shards:
        return shards.read(self.folder)


def _bytes(texts: list[str]) -> shards.Arrays:
    data = [text.encode() for text in texts]
    lengths = np.array(list(map(len, data)), np.int32)
    return {"text": np.frombuffer(b"".join(data), np.uint8), "lengths": lengths}
