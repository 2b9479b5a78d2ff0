"""BM25's candidates, which can be kept before a re-ranker, or a run of BM25 itself, needs them.

Beside an index (:func:`eval_kit.search.bm25.index_once`) lies, for each setting, ``candidates/<key>/``: parquet files
of 1,000 queries (``query_id``, ``text``, and best first ``passage_ids`` and ``scores``), named by their digests, each
on the disk before the next one begins.
"""

import hashlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path

import polars as pl

from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.digests import file_sha256
from eval_kit.search import bm25

BM25 = "bm25"
SHARD, FEW = 1_000, 100
"""Queries in a file; and those searched for at once where nothing is kept, so that progress shows."""
_DIGITS = 16
"""Of a file's digest, in its name."""
QUERY = ["query_id", "text"]
_HITS: dict[str, pl.DataType] = {"passage_ids": pl.List(pl.String), "scores": pl.List(pl.Float32)}
ID, SCORE = itemgetter(0), itemgetter(1)


@dataclass(frozen=True)
class Settings:
    """Passages per query, and BM25's parameters."""

    depth: int = 1000
    k1: float = bm25.K1
    b: float = bm25.B


def find(queries: pl.DataFrame, index: Path, settings: Settings) -> None:
    """Search for every ``query_id`` and ``text`` that was not searched for before, and keep what is found.

    A killed call loses at most ``SHARD`` queries; the next one continues, and ends with the same files. Several queries
    may have the same id and different texts. ``index`` is a folder of :func:`eval_kit.search.bm25.index_once`.
    """
    store = _store(index, settings)
    try:
        store.mkdir(parents=True, exist_ok=True)
        with atomic.file_lock(store / ".lock"):
            _remove_damaged(store)
            rows = _stored_queries(store)
            pairs = queries.select(QUERY).unique(maintain_order=True)
            rest = pairs.join(rows, on=QUERY, how="anti", maintain_order="left")
            rankings = _search(rest, index, settings)
            with counting("finding BM25's candidates", "queries", pairs.height) as advance:
                advance(pairs.height - rest.height)
                for number, part in enumerate(rest.iter_slices(SHARD), start=rows["file"].n_unique()):
                    hits = [(list(map(ID, top)), list(map(SCORE, top))) for _, top in islice(rankings, part.height)]
                    frame = part.hstack(pl.DataFrame(hits, _HITS, orient="row"))
                    file = store / f"{number:05d}.parquet"
                    atomic.write_parquet(file, frame)
                    file.rename(store / f"{number:05d}.{file_sha256(file)[:_DIGITS]}.parquet")
                    advance(part.height)
    except OSError as error:
        raise UserError(f"Could not keep candidates in {store}: {error.strerror or error}") from error


def of(queries: pl.DataFrame, index: Path, settings: Settings) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Each query's id and ``(passage id, score)`` pairs, best first, as those of :func:`.bm25.search`.

    What :func:`find` kept is read; other queries are searched for. No two of the queries may have the same id.
    """
    rows = _stored_queries(_store(index, settings))
    for part in queries.select(QUERY).iter_slices(SHARD if rows.height else FEW):
        files = part.join(rows, on=QUERY)["file"].unique().to_list()
        old_hits = (
            pl.read_parquet(files, glob=False).join(part, on=QUERY, how="semi")
            if files
            else pl.DataFrame(schema=rows.schema)
        )
        new_hits = dict(_search(part.join(old_hits, on=QUERY, how="anti", maintain_order="left"), index, settings))
        for query_id, _, *hits in old_hits.iter_rows():
            new_hits[query_id] = list(zip(*hits, strict=True))
        yield from ((query_id, new_hits[query_id]) for query_id in part["query_id"])


def _search(queries: pl.DataFrame, index: Path, settings: Settings) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    if queries.is_empty():
        return iter(())
    plain = bm25.index_in(index)
    return bm25.search(queries.iter_rows(), plain, settings.depth, k1=settings.k1, b=settings.b)


def _stored_queries(store: Path) -> pl.DataFrame:
    """``query_id``, ``text`` and ``file`` of the queries whose candidates are kept."""
    files = sorted(store.glob("*.*.parquet"))
    if not files:
        return pl.DataFrame(schema=dict.fromkeys([*QUERY, "file"], pl.String))
    return pl.scan_parquet(files, include_file_paths="file", glob=False).select(*QUERY, "file").collect()


def _remove_damaged(store: Path) -> None:
    for file in store.glob("*.*.parquet"):
        if file.name.split(".")[1] != file_sha256(file)[:_DIGITS]:
            warnings.warn(f"{file} is damaged. The kit searches its queries again", stacklevel=3)
            file.unlink()


def _store(index: Path, settings: Settings) -> Path:
    """The folder, named by the passages, the settings, and what is kept."""
    parts = json.dumps([bm25.key_of(index), *astuple(settings), *_HITS])
    return index.parent / "candidates" / hashlib.sha256(parts.encode()).hexdigest()[:16]
