"""Changes between two releases: which queries entered, left, or moved, table by table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl
import polars.selectors as cs

from eval_kit.documents import Document, TestSetEntry
from eval_kit.release import Release


@dataclass(frozen=True)
class TableDiff:
    """The difference of one table.

    A row is identified by its id columns; *moved* means that its other columns differ. A test set or variation that was
    added, removed or redefined is reported as a split of the config ``test_sets`` or ``variations``.
    """

    config: str
    split: str
    entered: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    whole: str = ""

    def lines(self) -> list[str]:
        """The changes as text: how many rows, by kind of change, then one line for each."""
        counts = f"{len(self.entered):,} entered, {len(self.left):,} left, {len(self.moved):,} moved"
        lines = [f"{self.config}/{self.split}: {self.whole or counts}"]
        for sign, rows in {"+": self.entered, "-": self.left, "~": self.moved}.items():
            lines += [f"  {sign} {row}" for row in rows]
        return lines


def diff(old: Release, new: Release) -> list[TableDiff]:
    """The tables, test sets and variations that differ, in manifest order; tables of equal digest are not read."""
    return [
        *_tables(old, new),
        *_entries("test_sets", _test_sets(old), _test_sets(new)),
        *_entries("variations", old.variations, new.variations),
    ]


def _tables(old: Release, new: Release) -> Iterator[TableDiff]:
    before = {table.key: table for table in old.manifest.tables}
    after = {table.key: table for table in new.manifest.tables}
    for config, split in dict.fromkeys([*before, *after]):
        key = (config, split)
        if key not in after:
            yield TableDiff(config, split, whole="left")
        elif key not in before:
            yield TableDiff(config, split, whole="entered")
        elif before[key].digest != after[key].digest:
            yield _rows(config, split, old.table(config, split), new.table(config, split))
        elif before[key].columns != after[key].columns:
            yield TableDiff(config, split, whole="the labels' numbers changed")


def _test_sets(release: Release) -> dict[str, TestSetEntry]:
    return {entry.name: entry for entry in release.manifest.test_sets}


def _entries(kind: str, before: Mapping[str, Document], after: Mapping[str, Document]) -> Iterator[TableDiff]:
    """Entries of the manifest, by name; their counts are those of their tables."""
    for name in dict.fromkeys([*before, *after]):
        if name not in after or name not in before:
            yield TableDiff(kind, name, whole="entered" if name in after else "left")
        else:
            old, new = before[name].as_json(), after[name].as_json()
            keys = sorted({*old, *new} - {"queries"})
            differing = [key for key in keys if old.get(key) != new.get(key)]
            if differing:
                yield TableDiff(kind, name, whole=f"changed its {', '.join(differing)}")


def _rows(config: str, split: str, old: pl.DataFrame, new: pl.DataFrame) -> TableDiff:
    if old.columns != new.columns:
        return TableDiff(config, split, whole=f"columns changed from {old.columns} to {new.columns}")
    ids = max(_id_columns(old), _id_columns(new), key=len)
    new_rows = new.join(old, on=ids, how="anti")
    old_rows = old.join(new, on=ids, how="anti")
    changed_rows = new.join(old, on=old.columns, how="anti", nulls_equal=True).join(new_rows, on=ids, how="anti")
    return TableDiff(config, split, _names(new_rows, ids), _names(old_rows, ids), _names(changed_rows, ids))


def _id_columns(frame: pl.DataFrame) -> list[str]:
    """The columns that identify a row: query and passage in qrels; else the query, plus its cluster if it repeats."""
    ids = frame.select(cs.ends_with("-id", "_id")).columns
    repeats = "cluster" in frame.columns and frame["query_id"].is_duplicated().any()
    return [*ids, "cluster"] if repeats else ids


def _names(frame: pl.DataFrame, ids: list[str]) -> list[str]:
    return frame.select(pl.concat_str(ids, separator=" ")).to_series().to_list()
