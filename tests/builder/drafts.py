"""A release of three small tables, which is written in a moment."""

from pathlib import Path
from typing import Any

import polars as pl
from msgspec import structs

from builder.release import write
from builder.shifts import length
from builder.verify import verify
from eval_kit.authors.draft import Draft, Table, new_test_set
from eval_kit.documents import Rule
from eval_kit.release import Release, open_release

CLUSTERS = pl.Enum(["short", "long"])
RULES = {"length": Rule(length.RULE, length.SOURCE)}
BY_HAND = Rule("made by hand", "tests/builder/drafts.py")
QUERIES = {
    "query_id": ["1", "2", "10", "30"],
    "text": ["what is  a cat", "how do cats  say, or \"mew\", 'mew' 24", "naïve café ☕ prices", "d\\ne"],
    "cluster": ["short", "long", "short", "short"],
}
QRELS = {"query-id": ["1", "1", "2", "10", "30"], "corpus-id": ["7", "70", "7", "8", "9"], "score": [1, 0, 3, 1, 2]}
PASSAGES = {"passage_id": ["7", "8", "9", "70"], "text": ["seven", "eight  ☕", 'ni"ne', "seventy"]}


def small_draft(
    texts: list[str] | None = None,
    clusters: list[str] | None = None,
    version: str = "1.0.0",
    qrels: dict[str, list[object]] | None = None,
    names: tuple[str, ...] = ("short", "long"),
    shuffle: int | None = None,
) -> Draft:
    queries = pl.DataFrame(QUERIES).with_columns(
        pl.Series("text", texts or QUERIES["text"]),
        pl.Series("cluster", clusters or QUERIES["cluster"], dtype=CLUSTERS),
    )
    frames = {
        ("length", "test"): queries,
        ("qrels", "dev"): pl.DataFrame(qrels or QRELS),
        ("passages", "passages"): pl.DataFrame(PASSAGES),
    }
    if shuffle is not None:
        frames = {key: frame.sample(fraction=1, shuffle=True, seed=shuffle) for key, frame in frames.items()}
    return Draft(
        kind="mini",
        version=version,
        collection=None,
        seed=0,
        tables=[Table(*key, frame, RULES.get(key[0], BY_HAND)) for key, frame in frames.items()],
        test_sets=[
            new_test_set(f"length.{name}", "length", "length", "test", "dev", ["RR@10"], where=("cluster", [name]))
            for name in names
        ],
        reports={"given.tsv": "a\tb\n"},
    )


def written(folder: Path, draft: Draft | None = None, **changes: Any) -> Release:
    """The release of a draft, by default the small one with some changes."""
    write(draft or small_draft(**changes), folder)
    return open_release(folder)


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def faults(folder: Path) -> dict[str, str]:
    """What verify finds, by check."""
    return {check.what: check.fault for check in verify(folder) if check.fault}


def part(release: Release, *names: str) -> Release:
    """Some tables of a release, whole configs or ``config/split``, and the test sets that they suffice for."""
    tables = [table for table in release.manifest.tables if {table.config, "/".join(table.key)} & {*names}]
    keys = {table.key for table in tables}
    test_sets = [entry for entry in release.manifest.test_sets if {entry.table, ("qrels", entry.qrels)} <= keys]
    manifest = structs.replace(release.manifest, tables=tables, test_sets=test_sets, variations=[])
    return Release(release.folder, manifest)
