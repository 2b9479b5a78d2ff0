"""The manifest of a release, and its tables as the manifest describes them.

Opening a release checks that the release digest is that of the manifest's content, and that every file is, byte for
byte or row for row, the one that the manifest lists. Reading a table proves its content digest, which is part of the
release digest, once for files of the same bytes (the cache notes it): no figure rests on rows that the digest beside it
does not cover, whatever else in the manifest was edited to fit. The sizes of a table are compared with the manifest's
before it is in memory. Files hold labels by name; those of earlier versions, which hold their numbers, are read too.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import polars as pl

from eval_kit.documents import MS_MARCO, NAME, Column, ColumnType, Manifest, TableEntry
from eval_kit.errors import UserError, first_line
from eval_kit.files import strict_json
from eval_kit.files.cache import cache_folder
from eval_kit.files.digests import file_sha256, release_digest, table_digest
from eval_kit.files.opening import check_no_pointer, is_file, is_folder
from eval_kit.files.packed import MOST_GROWTH, check_rows, room_of
from eval_kit.measures import definitions
from eval_kit.sentences import counted

MANIFEST = "manifest.json"

COLUMN_TYPES: dict[pl.DataType, ColumnType] = {
    pl.String(): "string",
    pl.Int64(): "int64",
    pl.List(pl.String): "list<string>",
}
_QUERIES: dict[str, tuple[str, ...]] = {"query_id": ("string",), "text": ("string",)}
_QRELS: dict[str, tuple[str, ...]] = {"query-id": ("string",), "corpus-id": ("string",), "score": ("int64",)}
_NEVER_NULL = ("query_id", "query-id", "corpus-id", "passage_id", "score")
MOST_MEASURES = 100
"""Different ones in a release."""
_DAMAGE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


class ReleaseError(UserError):
    """A release that cannot be found, is damaged, or lacks what was requested."""


class NoReleaseError(ReleaseError):
    """There is no release of that name."""


def verified_manifest(folder: Path, partly: bool = False) -> Manifest:
    """Read ``manifest.json``, and check it and every file that it names.

    ``partly``: files may be absent, as in a download of a part; reading these is refused.
    """
    manifest = read_manifest(folder)
    if release_digest(manifest) != manifest.digest:
        raise ReleaseError(f"{folder / MANIFEST} was edited", "Its digest does not fit the tables that it lists")
    here = [table for table in manifest.tables if not partly or has_file(folder, table)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda table: _check_file(folder, table), here))
    return manifest


def has_file(folder: Path, table: TableEntry) -> bool:
    """Whether there is anything by the name of a table's file; a broken link is something."""
    return os.path.lexists(folder / table.path)


def check_folder_name(folder: str) -> None:
    """Refuse a name that polars cannot open."""
    if not folder.isascii() and folder != folder.encode("utf-8", "replace").decode():
        raise ReleaseError(f"The name of {folder} is not UTF-8", do="Rename it")


def read_manifest(folder: Path) -> Manifest:
    """Read ``manifest.json`` and check it, and that what it names is in it."""
    check_folder_name(str(folder))
    path = folder / MANIFEST
    if not is_file(path):
        what = f"The folder {folder} does not exist"
        if is_folder(folder):
            what = f"{folder} is not a release, as it has no {MANIFEST}"
        raise NoReleaseError(what, do="Use a release folder or Hub id, or build one: make release")
    try:
        manifest = strict_json.load(Manifest, path)
        _check_names(manifest)
    except ReleaseError as error:
        raise ReleaseError(f"{path}: {error}") from error
    except UserError as error:
        raise ReleaseError(str(error)) from error
    return manifest


def title(manifest: Manifest) -> str:
    """The dataset's name: ``ms-marco-shift``, or one after the collection it was rebuilt from, as the Hub takes it."""
    if manifest.collection == MS_MARCO or not manifest.built_from:
        return NAME
    plain = unicodedata.normalize("NFKD", manifest.built_from.rpartition("/")[2]).encode("ascii", "ignore").decode()
    return "-".join([*re.findall(r"\w+(?:\.\w+)*", plain), "shift"])


def data_name(manifest: Manifest) -> str:
    """What readers call the data: a folder by its name, mini by that, a release by its title."""
    if manifest.kind in ("beir", "judgements") and manifest.built_from:
        return manifest.built_from
    return "mini" if manifest.kind == "mini" else title(manifest)


SYNTHETIC = "synthetic: pseudo-words in no language, so figures say nothing of real search"
"""What every result of mini says."""


def is_synthetic(manifest: Manifest) -> bool:
    """Whether it is mini, or a part of mini, whose pseudo-words are in no language."""
    return manifest.kind == "mini" or manifest.built_from == f"{NAME}-mini"


def is_of_ms_marco(manifest: Manifest) -> bool:
    """Whether queries and passages are MS MARCO's, all of them or a part."""
    return MS_MARCO in (manifest.collection, manifest.built_from)


def language(manifest: Manifest) -> str | None:
    """The language of the queries by ISO 639; ``zxx`` is none at all; None where it is unknown."""
    return "zxx" if is_synthetic(manifest) else "en" if is_of_ms_marco(manifest) else manifest.language


def read_table(folder: Path, table: TableEntry, proved: bool = False) -> pl.DataFrame:
    """Read one table, label columns as their names, and prove that it is what the manifest says.

    ``proved``: it is enough that a file of the same bytes was proved before, as the cache notes.
    """
    path, name = folder / table.path, f"{table.config}/{table.split}"
    frame = _read(path, table, name)
    if missing := [column for column in _NEVER_NULL if column in frame.columns and frame[column].null_count()]:
        raise ReleaseError(f"The table {name} in {path} has a row without {missing[0]}")
    proof = _proof(path, table) if proved else None
    if proof is not None and is_file(proof):
        return frame
    if table_digest(frame, table.columns) != table.digest:
        raise ReleaseError(f"The table {name} of {folder} is not the one in the manifest", "Its content digest differs")
    if proof is not None:
        with suppress(OSError):  # without it, it is proved again
            proof.parent.mkdir(parents=True, exist_ok=True)
            proof.touch()
    return frame


def _proof(path: Path, table: TableEntry) -> Path:
    """What stands in the cache once a file of these bytes was found to have the content that the manifest says."""
    claim = [file_sha256(path), table.digest, [column.as_json() for column in table.columns]]
    return cache_folder() / "proved" / hashlib.sha256(json.dumps(claim).encode()).hexdigest()


def _check_file(folder: Path, table: TableEntry) -> None:
    path = folder / table.path
    if not is_file(path):
        raise ReleaseError(*_absent(path))
    if file_sha256(path) != table.sha256:
        read_table(folder, table)


def _absent(path: Path) -> tuple[str, str]:
    if os.path.lexists(path):
        return f"{path} is not a file", "The release is damaged"
    return f"{path} is missing, although the manifest lists it", "It was not downloaded, or is lost"


def _read(path: Path, table: TableEntry, name: str) -> pl.DataFrame:
    kinds: dict[str, str] = {column.name: column.type for column in table.columns}
    if not is_file(path):
        raise ReleaseError(*_absent(path))
    with path.open("rb") as file:
        check_no_pointer(path, file.read(32))
        room = room_of(file)
    try:
        lazy = pl.scan_parquet(path, hive_partitioning=False, glob=False)
        rows = lazy.select(pl.len()).collect().item()
        file_kinds: dict[str, str] = {
            column: COLUMN_TYPES.get(dtype, str(dtype)) for column, dtype in lazy.collect_schema().items()
        }
        if rows != table.rows:
            raise ReleaseError(
                f"The table {name} in {path} has {counted(rows, 'row')}, but {table.rows:,} in the manifest"
            )
        check_rows(path, rows, room)
        labels = [column for column in table.columns if column.type == "label"]
        expected_kinds = dict(kinds)
        for column in labels:
            expected_kinds[column.name] = "int64" if file_kinds.get(column.name) == "int64" else "string"
        if file_kinds != expected_kinds:
            raise ReleaseError(f"{path} has the columns {file_kinds}, but the manifest says {kinds}")
        frame = lazy.collect()
    except _DAMAGE as error:
        raise ReleaseError(f"Could not read {path} as Parquet: {first_line(error)}") from error
    if _text_bytes(frame) > room:
        raise ReleaseError(f"{path} unpacks to more than {MOST_GROWTH} times its size", "No table does that")
    try:
        return frame.with_columns(_label_names(column, expected_kinds[column.name]) for column in labels)
    except pl.exceptions.PolarsError as error:
        raise ReleaseError(f"{path} contains a label that the manifest does not name") from error


def _label_names(column: Column, kind: str) -> pl.Expr:
    names = column.labels or []
    if kind == "int64":
        return pl.col(column.name).replace_strict(dict(enumerate(names)), return_dtype=pl.String)
    return pl.col(column.name).cast(pl.Enum(names)).cast(pl.String)


def _text_bytes(frame: pl.DataFrame) -> int:
    size = 0
    for column in frame:
        texts = column.list.explode() if column.dtype == pl.List else column
        if texts.dtype == pl.String:
            size += int(texts.str.len_bytes().cast(pl.Int64).sum())
    return size


def _check_names(manifest: Manifest) -> None:
    """Refuse a manifest that names what it does not list, or lists something twice."""
    columns: dict[tuple[str, str], dict[str, str]] = {}
    for table in manifest.tables:
        kinds: dict[str, str] = {column.name: column.type for column in table.columns}
        labels = [column.labels or () for column in table.columns]
        if table.key in columns or len(kinds) < len(table.columns) or any(len(set(one)) < len(one) for one in labels):
            raise ReleaseError(f"The table {'/'.join(table.key)}, or a column or label of it, is listed twice")
        columns[table.key] = kinds

    def require(what: str, config: str, split: str, columns_needed: Mapping[str, tuple[str, ...]]) -> None:
        kinds = columns.get((config, split), {})
        lacking = [column for column, kinds_allowed in columns_needed.items() if kinds.get(column) not in kinds_allowed]
        if lacking:
            raise ReleaseError(f"The {what} needs {config}/{split} with the column {lacking[0]}, which is not listed")

    names: set[str] = set()
    measures: set[str] = set()
    for test_set in manifest.test_sets:
        name = test_set.name
        if name in names:
            raise ReleaseError(f"The test set {name} is listed twice")
        names.add(name)
        if (test_set.column is None) != (test_set.values is None):
            raise ReleaseError(f"The test set {name} has a column without values, or values without a column")
        label = {} if test_set.column is None else {test_set.column: ("label", "string")}
        require(f"test set {name}", test_set.config, test_set.split, _QUERIES | label)
        require(f"test set {name}", "qrels", test_set.qrels, _QRELS)
        for measure in test_set.measures:
            definitions.parse(measure)
            measures.add(measure)
    if len(measures) > MOST_MEASURES:
        raise ReleaseError(f"Its test sets have {len(measures):,} different measures, more than {MOST_MEASURES}")
    if manifest.kind == "published" and (manifest.collection != MS_MARCO or ("passages", "passages") in columns):
        raise ReleaseError("It is called published, but has its own passages", "The authors' passages are MS MARCO's")
    splits, full_names = set[str](), set[str]()
    for variation in manifest.variations:
        if variation.split in splits or variation.full_name in full_names:
            raise ReleaseError(
                f"The query variation {variation.full_name}, or its table {variation.split}, is listed twice"
            )
        splits.add(variation.split)
        full_names.add(variation.full_name)
        require(f"a variation of {variation.base}", "variations", variation.split, _QUERIES)
        if variation.base not in names:
            raise ReleaseError(
                f"The query variation {variation.full_name} is of {variation.base}, which is not a test set of this "
                "release"
            )
