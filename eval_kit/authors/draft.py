"""A release before it is written: its tables, test sets and manifest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from eval_kit import __version__
from eval_kit.documents import Column, Input, Lack, Manifest, Rule, TableEntry, TestSetEntry, Variation
from eval_kit.files.digests import file_sha256, release_digest, table_digest
from eval_kit.files.opening import open_file
from eval_kit.release import COLUMN_TYPES, NAME


@dataclass(frozen=True)
class Table:
    """One split of one config. A column of polars type ``Enum`` becomes a ClassLabel."""

    config: str
    split: str
    frame: pl.DataFrame
    rule: Rule

    @property
    def path(self) -> str:
        """Path in the release folder, as the Hub's viewers expect it."""
        return f"data/{self.config}/{self.split}-00000-of-00001.parquet"

    @property
    def key(self) -> tuple[str, str]:
        """Config and split: what names a table."""
        return self.config, self.split

    @property
    def columns(self) -> list[Column]:
        """The manifest's description of the columns."""
        columns = []
        for name, dtype in self.frame.schema.items():
            if isinstance(dtype, pl.Enum):
                columns.append(Column(name=name, type="label", labels=dtype.categories.to_list()))
            else:
                columns.append(Column(name=name, type=COLUMN_TYPES[dtype]))
        return columns

    @cached_property
    def entry(self) -> TableEntry:
        """The manifest's description of the table; its file has no digest before it is written."""
        return TableEntry(
            config=self.config,
            split=self.split,
            path=self.path,
            rows=self.frame.height,
            columns=self.columns,
            digest=table_digest(self.frame, self.columns),
            rule=self.rule,
            sha256="",
        )


def new_test_set(
    name: str,
    shift: str,
    config: str,
    split: str,
    qrels: str,
    measures: Sequence[str],
    where: tuple[str, Sequence[str]] | None = None,
) -> TestSetEntry:
    """Queries to be scored together, counted when the release is written; ``where``: only rows of a column's labels."""
    column, values = where or (None, ())
    return TestSetEntry(
        name=name,
        shift=shift,
        config=config,
        split=split,
        qrels=qrels,
        measures=list(measures),
        column=column,
        values=None if column is None else list(values),
        queries=0,
    )


def query_ids(test_set: TestSetEntry, frame: pl.DataFrame) -> pl.Series:
    """The query ids of a test set, each once, from its table."""
    if test_set.column is not None:
        frame = frame.filter(pl.col(test_set.column).cast(pl.String).is_in(test_set.values or []))
    return frame["query_id"].unique(maintain_order=True)


@dataclass(frozen=True)
class Draft:
    """Everything that a release will hold, before it is written."""

    kind: str
    collection: str | None
    seed: int | None
    tables: Sequence[Table]
    test_sets: Sequence[TestSetEntry]
    version: str = "1.0.0"
    variations: Sequence[Variation] = ()
    inputs: Sequence[Input] = ()
    missing: Sequence[Lack] = ()
    remarks: Sequence[str] = ()
    built_from: str | None = None
    language: str | None = None
    reports: Mapping[str, str] = field(default_factory=dict)


def describe(draft: Draft) -> Manifest:
    """The manifest of a draft, without the digests of files that are not written yet."""
    frames = {table.key: table.frame for table in draft.tables}
    return with_digest(
        Manifest(
            name=NAME,
            version=draft.version,
            schema_version=1,
            kind=draft.kind,
            collection=draft.collection,
            code_version=__version__,
            seed=draft.seed,
            tables=[table.entry for table in draft.tables],
            test_sets=[replace(entry, queries=len(query_ids(entry, frames[entry.table]))) for entry in draft.test_sets],
            inputs=list(draft.inputs),
            missing=list(draft.missing),
            remarks=list(draft.remarks),
            variations=list(draft.variations),
            built_from=draft.built_from,
            language=draft.language,
            digest="",
        )
    )


def with_digest(manifest: Manifest) -> Manifest:
    """The manifest with the digest of its content."""
    return replace(manifest, digest=release_digest(manifest))


def input_record(path: Path, name: str, licence: str, url: str | None = None, git_blob: str | None = None) -> Input:
    """The manifest's record of a file that a build has read; without an address, its name stands for that."""
    with open_file(path) as file:  # it may be a pipe
        size, sha256 = file.seek(0, 2), file_sha256(path)
    return Input(id=name, url=url or name, bytes=size, sha256=sha256, git_blob=git_blob, licence=licence)
