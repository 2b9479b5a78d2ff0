"""Negatives for training: a sample of the passages that BM25 ranks high for a query and nobody judged relevant.

ECIR 2023 §3.1: "we sample 100 negatives using BM25, resulting in approximately 10M triplets in total". The paper does
not say from how many; here it is the usual 1000.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice, product
from pathlib import Path

import numpy as np
import polars as pl
from msgspec.structs import replace

from builder.features import features
from builder.release import extend
from eval_kit.authors.draft import Table
from eval_kit.console import counting
from eval_kit.documents import Rule, TableEntry
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.files.cache import cache_folder
from eval_kit.files.digests import OrderedDigest, file_sha256
from eval_kit.release import Release, verified_manifest
from eval_kit.search import bm25, lucene
from eval_kit.search.examples import relevant
from eval_kit.search.passages import collection_key
from eval_kit.sentences import counted
from eval_kit.shifts import SHIFTS, union

CONFIG, SPLIT = "negatives", "train"
SHARD = 1_000
"""Queries in a shard (and in a row group of the table): the most that an interrupted run may lose."""
SOURCE = "ECIR 2023 §3.1"
SCHEMA: dict[str, pl.DataType] = {"query_id": pl.String(), "passage_ids": pl.List(pl.String)}
_CHECKED_AT_ONCE = 10_000


@dataclass(frozen=True)
class NegativeParameters:
    """How many passages BM25 ranks, how many of them are drawn (the paper's number), and the draw's seed."""

    depth: int = 1_000
    sample: int = 100
    seed: int = 13


def add(
    folder: Path, parameters: NegativeParameters | None = None, cache: Path | None = None, threads: int = bm25.THREADS
) -> Release:
    """Draw the negatives of every training query of the release in ``folder``, and add them to it as a table.

    Each shard of queries is written to disk before the next begins, so a killed run resumes where it stopped, with the
    same result; memory does not grow with the number of queries. Two processes on one release wait for each other,
    and the second finds the work done.
    The folder is replaced as a whole by one that has the config ``negatives``; ``cache`` is for index and shards.
    """
    parameters = parameters or NegativeParameters()
    if not 0 < parameters.sample <= parameters.depth:
        raise UserError(f"{parameters.sample:,} passages cannot be drawn from {parameters.depth:,}")
    job = _Job(Release(folder, verified_manifest(folder)), parameters, cache or cache_folder())
    with disk_errors(job.folder):
        entry, file = job.table(threads)
    now = Release(folder, verified_manifest(folder))
    if _Job(now, parameters, job.cache).folder != job.folder:
        raise UserError(f"{folder} changed while its negatives were drawn, so nothing was added", do="Run this again")
    if any(replace(table, sha256=entry.sha256) == entry for table in now.manifest.tables):
        return now

    def copy_table(staging: Path) -> list[TableEntry]:
        (staging / entry.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, staging / entry.path)
        return [replace(entry, sha256=file_sha256(file))]

    return Release(folder, extend(folder, copy_table))


def training_queries(release: Release) -> pl.DataFrame:
    """``query_id`` and ``text`` of all training and validation queries, each once, in the digest's order.

    These are every ``train`` split of queries, every ReSTrain set, and the validation queries.
    """
    queries = union(release, _query_tables(release)).sort("text", nulls_last=True).unique("query_id", keep="first")
    if queries.is_empty():
        raise UserError(f"{release.folder} has no training queries to draw negatives for")
    length = pl.col("query_id").str.len_bytes().cast(pl.String)
    queries = queries.sort(pl.concat_str([length, pl.lit(":"), pl.col("query_id")]))
    without = queries.filter(pl.col("text").is_null())["query_id"]
    if len(without):
        raise UserError(
            f"{len(without):,} of the {counted(queries.height, 'training query')} of {release.folder} have no text, "
            f"such as {without[0]}",
            do="Use a complete release",
        )
    return queries


def draw(query_id: str, candidates: Sequence[str], sample: int, seed: int) -> list[str]:
    """``sample`` of a query's candidates (all, if there are fewer), in their order.

    The draw depends only on the seed and the query id, so neither the order of the queries nor their shards matter.
    """
    if len(candidates) <= sample:
        return list(candidates)
    own_seed = int.from_bytes(hashlib.sha256(f"{seed}\t{query_id}".encode()).digest())
    ranks = np.random.Generator(np.random.PCG64(own_seed)).permutation(len(candidates))[:sample]
    return [candidates[rank] for rank in np.sort(ranks)]


def fault(release: Release) -> str:
    """What is wrong with the release's negatives; empty if nothing is, or there are none.

    Each query must occur once, no passage may be in a row twice or be judged relevant to its query, and all passages
    must be in the collection if the release embeds it.
    """
    if SPLIT not in release.configs.get(CONFIG, []):
        return ""
    table = release.table(CONFIG, SPLIT)
    if (twice := table["query_id"].is_duplicated()).any():
        return f"query {table.filter(twice)['query_id'][0]} appears twice"
    positives = _positives(release)
    pool = release.table("passages", "passages").select("passage_id") if "passages" in release.configs else None
    for part in table.iter_slices(_CHECKED_AT_ONCE):
        pairs = part.rename({"passage_ids": "passage_id"}).explode("passage_id").drop_nulls()
        faults = {
            "appears twice for": pairs.filter(pairs.is_duplicated()),
            "is judged relevant to": pairs.join(positives, on=["query_id", "passage_id"], how="semi"),
        }
        if pool is not None:
            faults["is not in the collection, but is listed for"] = pairs.join(pool, on="passage_id", how="anti")
        for what, wrong in faults.items():
            if wrong.height:
                return f"passage {wrong['passage_id'][0]} {what} query {wrong['query_id'][0]}"
    return ""


@dataclass(frozen=True)
class _Job:
    """The negatives of one release with one set of parameters, in their own folder in the cache."""

    release: Release
    parameters: NegativeParameters
    cache: Path

    @property
    def rule(self) -> Rule:
        tables = list(map("/".join, _query_tables(self.release)))
        parameters = asdict(self.parameters) | {"k1": bm25.K1, "b": bm25.B, "queries": tables}
        text = (
            f"of the {self.parameters.depth:,} passages that BM25 (Lucene) ranks highest, those that no table judges "
            f"relevant to the query; of these {self.parameters.sample:,}, drawn at random (seeded), best first"
        )
        return Rule(text, SOURCE, parameters=parameters)

    @property
    def folder(self) -> Path:
        """Named after everything that the result depends on."""
        tables = [*_query_tables(self.release), *product(["qrels"], self.release.configs.get("qrels", []))]
        digests = {table.key: table.digest for table in self.release.manifest.tables}
        parts = [collection_key(self.release), [digests[key] for key in tables], self.rule.parameters, SHARD]
        return self.cache / CONFIG / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def table(self, threads: int) -> tuple[TableEntry, Path]:
        """The manifest's entry of the table, and the table's file."""
        lucene.start()  # reports what is missing before anything is written
        queries = training_queries(self.release)
        empty = Table(CONFIG, SPLIT, pl.DataFrame(schema=SCHEMA), self.rule)
        shards, file, digest = self.folder / "shards", self.folder / "negatives.parquet", self.folder / "digest"
        shards.mkdir(parents=True, exist_ok=True)
        with atomic.file_lock(self.folder / ".lock"):
            if not digest.exists():  # it is written last, so the table is whole
                self._fill(shards, queries, threads)
                parts = (
                    pl.read_parquet(_shard(shards, start), glob=False) for start in range(0, queries.height, SHARD)
                )
                atomic.write_text(digest, _join(parts, empty, file))
            shutil.rmtree(shards, ignore_errors=True)
            entry = replace(empty.entry, rows=queries.height, digest=digest.read_text(encoding="utf-8"), sha256="")
        return entry, file

    def _fill(self, shards: Path, queries: pl.DataFrame, threads: int) -> None:
        """Write the missing shards; existing ones are always the first."""
        starts = range(0, queries.height, SHARD)
        count = sum(_shard(shards, start).exists() for start in starts)
        todo = queries[count * SHARD :]
        if todo.is_empty():
            return
        index = bm25.index_of(self.release, self.cache, threads)
        rankings = bm25.search(todo.iter_rows(), index, self.parameters.depth, threads)
        positives = _positives(self.release)
        with counting("drawing negatives", "queries", queries.height) as advance:
            advance(queries.height - todo.height)
            for start in starts[count:]:
                ids = queries["query_id"][start : start + SHARD]
                of_shard = positives.join(ids.to_frame(), on="query_id", how="semi").rows_by_key("query_id")
                rows = []
                for query_id, hits in islice(rankings, len(ids)):
                    relevant_ids = set(chain.from_iterable(of_shard.get(query_id, [])))
                    rest = [passage_id for passage_id, _ in hits if passage_id not in relevant_ids]
                    rows.append((query_id, draw(query_id, rest, self.parameters.sample, self.parameters.seed)))
                    advance(1)
                atomic.write_parquet(_shard(shards, start), pl.DataFrame(rows, SCHEMA, orient="row"))


def _query_tables(release: Release) -> list[tuple[str, str]]:
    tables = set(product(["validation"], release.configs.get("validation", [])))
    for shift in SHIFTS.values():
        tables.update(shift.training_tables(release).values())
    return sorted(tables)


def _positives(release: Release) -> pl.DataFrame:
    """``query_id`` and ``passage_id`` of every pair that any table judges relevant (grade 1 or more)."""
    empty = pl.DataFrame(schema={"query_id": pl.String, "passage_id": pl.String})
    return pl.concat([empty, *(relevant(release, split) for split in release.configs.get("qrels", []))]).unique()


def _shard(folder: Path, start: int) -> Path:
    return folder / f"{start:09d}.parquet"


def _join(parts: Iterable[pl.DataFrame], table: Table, file: Path) -> str:
    """Write one parquet file, a row group for each part; returns its content digest.

    The rows come in the digest's order, so that it is computed as they are written.
    """
    import pyarrow.parquet as pq

    schema = features(table.columns).arrow_schema
    digest = OrderedDigest(table.columns)
    with atomic.whole(file) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for frame in parts:
            writer.write_table(frame.to_arrow().cast(schema))
            digest.update(digest.rows(frame))
    return digest.hexdigest()
