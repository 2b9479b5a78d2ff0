"""Content digests: what a table says, whatever its file format, row order or library versions.

A row is written as its fields, one after the other, each as a netstring (``<bytes>:<field>,`` in UTF-8);
integers in decimal, a label by its name, a list as the netstrings of its elements, null as ``~``.
The digest is the sha256 of the header row (column names and types) followed by all rows in byte order,
each ended by a newline.
"""

import hashlib
import json
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

import polars as pl

from eval_kit.documents import Column, Manifest, TestSetEntry, Variation
from eval_kit.files.opening import open_file


def table_digest(frame: pl.DataFrame, columns: Iterable[Column]) -> str:
    """The content digest of ``frame``, whose columns are described as in the manifest (labels by name)."""
    digest = OrderedDigest(columns)
    rows = digest.rows(frame).sort()
    for start in range(0, len(rows), 100_000):
        digest.update(rows[start : start + 100_000])
    return digest.hexdigest()


class OrderedDigest:
    """The content digest of a table that comes in parts, its rows in byte order already."""

    def __init__(self, columns: Iterable[Column]) -> None:
        columns = list(columns)
        self._row = pl.concat_str([_field(column.name, column.type) for column in columns])
        header = b"".join(_netstring(column.name) + _netstring(column.type) for column in columns)
        self._sha256 = hashlib.sha256(header + b"\n")

    def rows(self, frame: pl.DataFrame) -> pl.Series:
        """The canonical text of each row."""
        return frame.select(self._row).to_series()

    def update(self, rows: pl.Series) -> None:
        """Add the next rows."""
        self._sha256.update("\n".join([*rows.to_list(), ""]).encode())

    def hexdigest(self) -> str:
        """64 hexadecimal digits, of all rows so far."""
        return self._sha256.hexdigest()


def release_digest(manifest: Manifest) -> str:
    """The identity of a release: sha256 over all that a figure, and what is printed beside it, depends on.

    That is, as canonical JSON: name, kind, version and collection; of each table its place, row count, columns and
    content digest; the test sets with their measures; the variations; and what is missing. Columns count because the
    files may hold labels as numbers, which makes their names in the manifest content. File digests do not: they differ
    between library versions where the content does not.
    """
    content = {
        **{field: getattr(manifest, field) for field in ("name", "schema_version", "kind", "version", "collection")},
        "tables": sorted(
            [table.config, table.split, table.rows, table.digest, list(map(Column.as_json, table.columns))]
            for table in manifest.tables
        ),
        "test_sets": list(map(TestSetEntry.as_json, sorted(manifest.test_sets, key=attrgetter("name")))),
        "variations": list(map(Variation.as_json, sorted(manifest.variations, key=attrgetter("split")))),
        "missing": sorted(map(attrgetter("what"), manifest.missing)),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in 64 hexadecimal digits."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """The :func:`file_sha256` of each file below ``folder``, by its path there."""
    return {str(file.relative_to(folder)): file_sha256(file) for file in sorted(folder.rglob("*")) if file.is_file()}


def _field(name: str, kind: str) -> pl.Expr:
    column = pl.col(name)
    if kind == "list<string>":
        column = column.list.eval(_encode(pl.element()).fill_null("~")).list.join("")
    return _encode(column.cast(pl.String)).fill_null("~")


def _encode(text: pl.Expr) -> pl.Expr:
    return pl.concat_str([text.str.len_bytes().cast(pl.String), pl.lit(":"), text, pl.lit(",")])


def _netstring(text: str) -> bytes:
    return f"{len(text.encode())}:{text},".encode()
