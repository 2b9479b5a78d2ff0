"""A release with a part of its collection: what one GPU indexes in minutes, and BM25 still has to search in.

It keeps the queries and judgements of the release that it is made of, and of the passages those that are judged, BM25's
best for every test query, and others drawn at random. Figures on it are those of another task than the papers': fewer
passages compete.
"""

import hashlib
import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from builder.release import Draft, Rule, Table, TestSet, write
from eval_kit.console import counted
from eval_kit.errors import UserError
from eval_kit.release import Release
from search import bm25
from search.passages import passages

PASSAGES, DEPTH, SEED = 1_000_000, 20, 13
LEFT_OUT = ("passages", "negatives")
"""Tables that the lite release has its own of; negatives are drawn again, from its own passages."""
SOURCE = "ms-marco-shift"


def make(
    release: Release,
    out: Path,
    size: int = PASSAGES,
    depth: int = DEPTH,
    seed: int = SEED,
    cache: Path | None = None,
    threads: int = bm25.THREADS,
) -> dict[str, Any]:
    """Write the lite release of ``release`` to the folder ``out``.

    Args:
        release: with its passages, or the ir_datasets id of them.
        out: the new release folder.
        size: passages that it will hold; more, if judged ones and candidates are more.
        depth: of BM25's best passages for every test query.
        seed: of the draw. The same passages are drawn whatever their order.
        cache: for BM25's index of the whole collection; the user's cache folder without it.
        threads: of Java, without influence on the result.

    Returns:
        The manifest.

    Raises:
        UserError: the release is lite already; it has no test queries or no passages; no Java; ``out`` cannot be
            written.
    """
    from builder.sources.fetch import cache_folder

    if release.manifest["kind"] == "lite":
        raise UserError(f"{release.folder}: is a lite release already; make one of a release with all passages")
    kept = _judged(release) | _candidates(release, bm25.index_of(release, cache or cache_folder(), threads), depth)
    others = (passage_id for passage_id, _ in _read(release, "drawing passages") if passage_id not in kept)
    drawn = heapq.nsmallest(max(0, size - len(kept)), others, key=lambda passage_id: _draw(seed, passage_id))
    return write(_draft(release, kept | set(drawn), {"size": size, "depth": depth, "seed": seed}), out)


def _judged(release: Release) -> set[str]:
    splits = release.configs.get("qrels", [])
    return {passage_id for split in splits for passage_id in release.qrels(split)["passage_id"].unique()}


def _candidates(release: Release, index: Path, depth: int) -> set[str]:
    tables = sorted({(test_set["config"], test_set["split"]) for test_set in release.manifest["test_sets"]})
    if not tables:
        raise UserError(f"{release.folder}: has no test queries to find passages for")
    queries = pl.concat([release.table(*table).select("query_id", "text") for table in tables])
    queries = queries.unique("query_id", maintain_order=True)
    ranked = bm25.search(counted(queries.rows(), "finding candidates", "queries"), index, depth)
    return {passage_id for _, hits in ranked for passage_id, _ in hits}


def _draft(release: Release, kept: set[str], parameters: dict[str, int]) -> Draft:
    manifest = release.manifest
    rows = [(passage_id, text) for passage_id, text in _read(release, "reading passages") if passage_id in kept]
    rule = Rule(
        "all judged passages, BM25's best (depth) for every test query, and others drawn at random (seed) up to size",
        SOURCE,
        parameters=parameters | {"release": release.digest, "k1": bm25.K1, "b": bm25.B},
    )
    collection = Table(
        "passages", "passages", pl.DataFrame(rows, {"passage_id": pl.String, "text": pl.String}, orient="row"), rule
    )
    tables = [_table(release, entry) for entry in manifest["tables"] if entry["config"] not in LEFT_OUT]
    remark = f"lite: {len(rows):,} passages of the collection; not comparable with figures on all of them"
    return Draft(
        kind="lite",
        version=release.version,
        collection=None,
        seed=parameters["seed"],
        tables=[*tables, collection],
        test_sets=[_test_set(entry) for entry in manifest["test_sets"]],
        variations=list(release.variations.values()),
        inputs=manifest["inputs"],
        missing=manifest["missing"],
        remarks=[*manifest["remarks"], remark],
        built_from=manifest.get("built_from") or release.collection,
    )


def _table(release: Release, entry: dict[str, Any]) -> Table:
    labels = {column["name"]: column["labels"] for column in entry["columns"] if column["type"] == "label"}
    frame = release.table(entry["config"], entry["split"])
    return Table(
        entry["config"],
        entry["split"],
        frame.with_columns(pl.col(name).cast(pl.Enum(names)) for name, names in labels.items()),
        Rule(**entry["rule"]),
    )


def _test_set(entry: dict[str, Any]) -> TestSet:
    where = (entry["column"], entry["values"]) if "column" in entry else None
    named = {name: entry[name] for name in ("name", "shift", "config", "split", "qrels", "measures")}
    return TestSet(**named, where=where)


def _read(release: Release, doing: str) -> Iterator[tuple[str, str]]:
    return counted(passages(release), doing, "passages")


def _draw(seed: int, passage_id: str) -> bytes:
    return hashlib.sha256(f"{seed}\t{passage_id}".encode()).digest()
