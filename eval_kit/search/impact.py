"""Search of sparse vectors by Lucene: an impact index of integer weights, through Pyserini.

Weights are multiplied by ``SCALE`` and rounded, as SPLADE does for Anserini, so scores are not quite those of
:mod:`eval_kit.search.sparse`.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.search import lucene
from eval_kit.search.processes import cores
from eval_kit.search.retriever import best_first
from eval_kit.search.shards import Shards, building, is_built

SCALE = 100
GROUP = 1_024
"""Queries given to Lucene at once."""
THREADS = cores()


def build(shards: Shards, folder: Path) -> None:
    """Make the impact index in ``folder/lucene``, unless it is there.

    Raises:
        UserError: Java or Pyserini is missing; Lucene cannot write the index.
    """
    with building(folder, "lucene", _state(shards)) as missing:
        if not missing:
            return
        lucene.start()
        from jnius import autoclass

        documents = folder / "lucene.documents"
        shutil.rmtree(documents, ignore_errors=True)
        _write_documents(shards, documents)
        with atomic.folder(folder / "lucene") as staging:
            arguments = ["-collection", "JsonVectorCollection", "-generator", "DefaultLuceneDocumentGenerator"]
            arguments += ["-input", str(documents), "-index", str(staging), "-threads", str(THREADS)]
            arguments += ["-impact", "-pretokenized", "-quiet"]
            autoclass("io.anserini.index.IndexCollection").main(arguments)
            if not list(staging.glob("segments_*")):
                raise UserError(f"{folder}: Lucene could not write the impact index")
        shutil.rmtree(documents)


def load(shards: Shards, folder: Path) -> Any:
    """The searcher of the index that :func:`build` made.

    Raises:
        UserError: it is not there, or is of other passages.
    """
    if not is_built(folder, "lucene", _state(shards)):
        raise UserError(f"{folder}: holds no Lucene impact index of these passages; index them first")
    lucene.start()
    from pyserini.search.lucene import LuceneImpactSearcher

    return LuceneImpactSearcher(str(folder / "lucene"), _Encoded({}), min_idf=-1)


def search(queries: Any, searcher: Any, depth: int) -> Iterator[list[tuple[str, float]]]:
    """The passages that Lucene ranks highest for each of the queries: a scipy CSR matrix (q, terms)."""
    for start in range(0, queries.shape[0], GROUP):
        group = queries[start : start + GROUP]
        names = [str(number) for number in range(group.shape[0])]
        searcher.query_encoder = _Encoded(
            {name: _weights(group[int(name)].indices, group[int(name)].data) for name in names}
        )
        hits = searcher.batch_search(names, names, k=depth, threads=THREADS)
        for name in names:
            yield best_first((hit.docid, hit.score / SCALE**2) for hit in hits.get(name, []))


@dataclass
class _Encoded:
    """A query encoder of Pyserini's form, for queries that are encoded already."""

    weights: dict[str, dict[str, int]]

    def encode(self, query: str) -> dict[str, int]:
        return self.weights[query]


def _weights(terms: NDArray[np.int32], weights: NDArray[np.float32]) -> dict[str, int]:
    """Term numbers, which serve Lucene as terms, with their weights as integers; those that round to 0 left out."""
    impacts = (weights * SCALE).round().astype(int)
    return {f"t{term}": int(weight) for term, weight in zip(terms, impacts, strict=True) if weight > 0}


def _write_documents(shards: Shards, folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, (start, arrays) in enumerate(shards):
        ends = np.cumsum(arrays["lengths"])
        terms, weights = np.split(arrays["indices"], ends[:-1]), np.split(arrays["values"], ends[:-1])
        with (folder / f"{number:05d}.jsonl").open("w", encoding="utf-8") as file:
            for row, vector in enumerate(map(_weights, terms, weights), start=start):
                document = {"id": shards.ids[row].decode(), "contents": "", "vector": vector}
                file.write(json.dumps(document) + "\n")


def _state(shards: Shards) -> dict[str, str | int]:
    return {"shards": shards.key, "scale": SCALE}
