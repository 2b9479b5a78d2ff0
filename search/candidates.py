"""The passages that BM25 finds for a re-ranker, which may be kept before a model asks for them.

A folder holds ``bm25/`` (:func:`search.bm25.index_once`) and, for each setting, ``candidates/<key>/``: parquet files of
1,000 queries (``query_id``, ``text``, ``passage_ids``, best first), each on the disk before the next begins.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path

import polars as pl
from filelock import FileLock

from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.files import atomic
from search import bm25

BM25 = "bm25"
SHARD = 1_000
QUERY = ["query_id", "text"]
PASSAGES = pl.List(pl.String)


@dataclass(frozen=True)
class Settings:
    """Passages a query, and BM25's parameters."""

    depth: int = 1000
    k1: float = bm25.K1
    b: float = bm25.B


def find(queries: pl.DataFrame, folder: Path, settings: Settings) -> None:
    """Find the candidates of all ``query_id`` and ``text`` that were not found before, and keep them.

    A call that is killed loses at most ``SHARD`` queries; the next one goes on to the same files.

    Raises:
        UserError: the folder holds no finished index; no Java; the disk is full.
    """
    store = _store(folder, settings)
    try:
        store.mkdir(parents=True, exist_ok=True)
        with FileLock(store / ".lock"):
            known = _known(store)
            pairs = queries.select(QUERY).unique(maintain_order=True)
            left = pairs.join(known, on=QUERY, how="anti", maintain_order="left")
            ranked = _searched(left, folder, settings)
            with counting("finding BM25's candidates", "queries", pairs.height) as advance:
                advance(pairs.height - left.height, known=True)
                for number, part in enumerate(left.iter_slices(SHARD), start=known["file"].n_unique()):
                    ids = [passage_ids for _, passage_ids in islice(ranked, part.height)]
                    with atomic.whole(store / f"{number:05d}.parquet") as file:
                        part.with_columns(pl.Series("passage_ids", ids, PASSAGES)).write_parquet(file)
                    advance(part.height)
    except OSError as error:
        raise UserError(f"{store}: cannot keep candidates there: {error.strerror or error}") from error


def of(queries: pl.DataFrame, folder: Path, settings: Settings) -> Iterator[tuple[str, list[str]]]:
    """Each query's id and candidates, best first: those that :func:`find` kept; others are searched for.

    Raises:
        UserError: the folder holds no finished index; no Java.
    """
    known = _known(_store(folder, settings))
    for part in queries.select(QUERY).iter_slices(SHARD):
        files = part.join(known, on=QUERY)["file"].unique().to_list()
        kept = pl.read_parquet(files).join(part, on=QUERY, how="semi") if files else pl.DataFrame(schema=known.schema)
        ranked = _searched(part.join(kept, on=QUERY, how="anti", maintain_order="left"), folder, settings)
        candidates = {query_id: passage_ids for query_id, _, passage_ids in kept.iter_rows()} | dict(ranked)
        yield from ((query_id, candidates[query_id]) for query_id in part["query_id"])


def _searched(queries: pl.DataFrame, folder: Path, settings: Settings) -> Iterator[tuple[str, list[str]]]:
    if queries.is_empty():
        return
    index = bm25.index_in(folder / BM25)
    ranked = bm25.search(queries.iter_rows(), index, settings.depth, k1=settings.k1, b=settings.b)
    for query_id, hits in ranked:
        yield query_id, [passage_id for passage_id, _ in hits]


def _known(store: Path) -> pl.DataFrame:
    """``query_id``, ``text`` and ``file`` of the queries whose candidates are kept."""
    files = sorted(store.glob("*.parquet"))
    if not files:
        return pl.DataFrame(schema=dict.fromkeys([*QUERY, "file"], pl.String))
    return pl.scan_parquet(files, include_file_paths="file").select(*QUERY, "file").collect()


def _store(folder: Path, settings: Settings) -> Path:
    """Named by the passages and the settings."""
    parts = json.dumps([bm25.key_of(folder / BM25), *astuple(settings)])
    return folder / "candidates" / hashlib.sha256(parts.encode()).hexdigest()[:16]
