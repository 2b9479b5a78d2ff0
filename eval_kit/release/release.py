"""Open a release, from a folder or from the Hugging Face Hub, and trust it only as far as its manifest proves.

Every open checks the manifest against its schema and digest, and every table file against the manifest.
A file whose bytes differ (another parquet writer) passes only if its *content* digest is the manifest's.
"""

import os
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.documents import Lack, Manifest, Variation
from eval_kit.errors import choices, did_you_mean, parameter
from eval_kit.files.formats import SCORED_AS
from eval_kit.files.opening import is_file, is_folder
from eval_kit.release import beir_folder
from eval_kit.release.manifest import (
    MANIFEST,
    SYNTHETIC,
    ReleaseError,
    check_folder_name,
    has_file,
    is_synthetic,
    read_manifest,
    read_table,
    verified_manifest,
)
from eval_kit.sentences import counted

DEFAULT = "ms-marco-shift"
ENVIRONMENT_VARIABLE = "MS_MARCO_SHIFT_RELEASE"
"""Names the release to open where a caller names none."""
_SPLITS_LISTED = 6
"""Splits of a config that a notebook lists."""
_FIXED_REVISION = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+|[0-9a-f]{40}")
_ON_THE_HUB = re.compile(
    r"(?P<surely>(https?://(www\.)?(huggingface\.co|hf\.co)/|hf://)?datasets/)?(?P<id>[^/@~][^/@]*/[^/@]+)"
    r"((@|/(tree|resolve|blob)/)(?P<revision>[^/]+))?/?"
)
"""How people write the id of a dataset on the Hub, and a revision behind it."""


class PartialRelease(UserWarning):
    """A table of the release lacks what could not be obtained when it was built."""


@dataclass(frozen=True, repr=False)
class TestSet:
    """Queries that are scored together, and how: one entry of the manifest's ``test_sets``."""

    __test__ = False

    name: str
    shift: str
    measures: tuple[str, ...]
    queries: pl.Series
    qrels: str

    @cached_property
    def query_ids(self) -> frozenset[str]:
        """The ids of ``queries``."""
        return frozenset(self.queries)

    def __repr__(self) -> str:
        """One line: the name, the number of queries and the measures."""
        return f"TestSet({self.name}: {len(self.queries):,} queries, {', '.join(self.measures)})"


@dataclass(frozen=True, repr=False)
class Release:
    """A verified release folder; tables are read on demand. ``obtained`` says how, where that is worth a caution."""

    folder: Path
    manifest: Manifest
    _read: dict[tuple[str, str], pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)
    given_as: str = ""
    obtained: str = ""

    def __repr__(self) -> str:
        """One line: what the release is and how much it holds."""
        tables, test_sets = len(self.manifest.tables), len(self.manifest.test_sets)
        lacks = f", lacking {len(self.missing)} parts" if self.missing else ""
        return (
            f"Release({self.folder}: {self.manifest.kind} {self.version}, digest {self.digest[:16]}, "
            f"{tables} tables, {test_sets} test sets{lacks})"
        )

    def _repr_html_(self) -> str:
        """The configs for a notebook, with their splits and rows."""
        from eval_kit.tables.html import to_html  # numpy, and all that a notebook alone needs
        from eval_kit.tables.table import Column, Table

        rows = []
        for config, splits in self.configs.items():
            count = sum(table.rows for table in self.manifest.tables if table.config == config)
            names = ", ".join(splits[:_SPLITS_LISTED]) + ", …" * (len(splits) > _SPLITS_LISTED)
            rows.append([config, names, f"{count:,}"])
        columns = [Column("Config"), Column("Splits"), Column("Rows", "number")]
        return to_html(Table(columns, [rows], repr(self)))

    @property
    def name(self) -> str:
        """What messages call it: what the user gave or was given, else the folder."""
        return self.given_as or str(self.folder)

    @property
    def version(self) -> str:
        """Semantic version of the data."""
        return self.manifest.version

    @property
    def in_beir_format(self) -> bool:
        """Whether this is a folder in BEIR's format, which is scored as BEIR's own evaluator does."""
        return self.manifest.kind == beir_folder.KIND

    @property
    def digest(self) -> str:
        """Identity of the content: 64 hexadecimal digits."""
        return self.manifest.digest

    @property
    def identity(self) -> dict[str, Any]:
        """What the provenance of a result says of the release."""
        kind = self.manifest.kind
        identity = {"version": self.version, "kind": kind, "digest": self.digest, "missing": self.missing}
        return identity | ({"cautions": self.cautions} if self.cautions else {})

    @property
    def collection(self) -> str:
        """The ir_datasets id of the passages' collection, or the name of those that the release brings."""
        return self.manifest.collection or f"ms-marco-shift-{self.manifest.kind}"

    @property
    def missing(self) -> list[str]:
        """What a partial release lacks; empty in a complete one."""
        return list(map(attrgetter("what"), self.manifest.missing))

    @property
    def cautions(self) -> list[str]:
        """Why figures on this release are not to be trusted; every table of them repeats it."""
        cautions = ([SYNTHETIC] if is_synthetic(self.manifest) else []) + ([self.obtained] if self.obtained else [])
        # the remarks of builder.lite
        return cautions + [remark for remark in self.manifest.remarks if remark.startswith("pool of ")]

    @property
    def configs(self) -> dict[str, list[str]]:
        """Config names and their splits, in the manifest's order."""
        configs: dict[str, list[str]] = {}
        for table in self.manifest.tables:
            configs.setdefault(table.config, []).append(table.split)
        return configs

    def table(self, config: str, split: str) -> pl.DataFrame:
        """One table, label columns as their names; read once, then kept in memory.

        Warns:
            PartialRelease: the table lacks something, as the manifest says.
        """
        key = (config, split)
        if key in self._read:
            return self._read[key]
        lacking = [f"{part.what}: {part.because}" for part in self.manifest.missing if _concerns(part, *key)]
        for table in self.manifest.tables:
            if table.key == key:
                for part in lacking:
                    warnings.warn(f"{self.folder} is a partial release, without {part}", PartialRelease, stacklevel=2)
                return self._read.setdefault(key, read_table(self.folder, table, proved=True))
        if lacking:
            raise ReleaseError(f"{self.folder} is a partial release, without {lacking[0]}")
        have = ", ".join(f"{name}/{split}" for name, splits in self.configs.items() for split in splits)
        raise ReleaseError(f"{self.folder} has no {config}/{split}", f"It has {have}")

    @cached_property
    def test_sets(self) -> dict[str, TestSet]:
        """All test sets by name, each with its own list of query ids; without those that were not downloaded."""
        sets = _TestSets()
        for entry in self.manifest.test_sets:
            if not {entry.table, ("qrels", entry.qrels)}.isdisjoint(self._absent):
                continue
            rows = self.table(*entry.table)
            if entry.column is not None:
                rows = rows.filter(pl.col(entry.column).is_in(entry.values or []))
            queries = rows["query_id"].unique(maintain_order=True)
            # digests prove the table, not that this selection of it is what the builder counted
            if len(queries) != entry.queries:
                raise ReleaseError(
                    f"The test set {entry.name} of {self.folder} has {counted(len(queries), 'query')}, but "
                    f"{entry.queries:,} in the manifest"
                )
            sets[entry.name] = TestSet(
                name=entry.name, shift=entry.shift, measures=tuple(entry.measures), queries=queries, qrels=entry.qrels
            )
        return sets

    @cached_property
    def _absent(self) -> set[tuple[str, str]]:
        """Config and split of the tables that were not downloaded."""
        tables = (table for table in self.manifest.tables if table.key not in self._read)
        return {table.key for table in tables if not has_file(self.folder, table)}

    def test_sets_of(self, shift: str) -> list[TestSet]:
        """The test sets of a shift or benchmark."""
        if test_sets := [test_set for test_set in self.test_sets.values() if test_set.shift == shift]:
            return test_sets
        shifts = dict.fromkeys(map(attrgetter("shift"), self.test_sets.values()))
        raise ReleaseError(f"{self.folder} has no test sets of {shift}", f"It has test sets of {', '.join(shifts)}")

    def queries(self, test_set: str) -> pl.DataFrame:
        """``query_id`` and ``text`` of a test set, in the order of its query ids."""
        ids = self.test_sets[test_set].queries.to_frame("query_id")
        entry = next(entry for entry in self.manifest.test_sets if entry.name == test_set)
        # a query has a row for each of its parts, as in wh
        texts = self.table(*entry.table).select("query_id", "text").unique("query_id")
        return ids.join(texts, on="query_id", how="left", maintain_order="left")

    @cached_property
    def variations(self) -> dict[str, Variation]:
        """All variations by full name, in the manifest's order."""
        return {variation.full_name: variation for variation in self.manifest.variations}

    def wordings(self, variation: Variation) -> pl.DataFrame:
        """``query_id`` and ``text`` of a variation."""
        return self.table("variations", variation.split)

    def qrels(self, name: str) -> pl.DataFrame:
        """Judgements of a split or test set: ``query_id``, ``passage_id`` (strings) and ``relevance`` (int64)."""
        if name not in self.configs.get("qrels", ()):
            test_set = self.test_sets[name]
            of_split = self.table("qrels", test_set.qrels).rename(SCORED_AS)
            return of_split.filter(pl.col("query_id").is_in(test_set.queries.implode()))
        return self.table("qrels", name).rename(SCORED_AS)


class _TestSets(dict[str, TestSet]):
    """Test sets by name."""

    def __missing__(self, name: object) -> TestSet:
        hint = did_you_mean(name, self)
        raise ReleaseError(f"Unknown test set {name!r:.40}{hint}", do=f"Choose from: {choices(self)}")


def _concerns(part: Lack, config: str, split: str) -> bool:
    """Whether a part that the manifest says is missing belongs to a table: it names the table, or the whole config."""
    names = part.what.replace(",", " ").split()
    return f"{config}/{split}" in names or part.what == config


def has_default() -> bool:
    """Whether :func:`open_release` has a release to open when none is given."""
    return bool(os.environ.get(ENVIRONMENT_VARIABLE)) or Path(DEFAULT, MANIFEST).is_file()


def open_release(source: Release | str | os.PathLike[str] | None = None) -> Release:
    """Open and verify a release.

    Args:
        source: a release folder, a folder in BEIR's format, or a Hub dataset id (``namespace/name``, or
            ``namespace/name@v1.0.0`` for a tag or commit). Without it, the environment variable
            ``MS_MARCO_SHIFT_RELEASE``, else the folder ``ms-marco-shift`` here. An open release is returned as it is.
    """
    if isinstance(source, Release):
        return source
    if source is not None and not (isinstance(source, str | os.PathLike) and str(source)):
        what = "an empty name" if isinstance(source, str) else f"a {type(source).__name__}"
        raise ReleaseError(f"{parameter('release')} takes a folder or a Hub id, not {what}")
    where = str(source if source is not None else os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT)
    check_folder_name(where)
    folder, obtained = Path(where), ""
    on_the_hub = None if is_folder(folder) or is_file(folder) else _ON_THE_HUB.fullmatch(where)
    # ./a/b is a folder that is not there, never an id
    if on_the_hub and (on_the_hub["surely"] or not where.startswith(".")):
        folder, obtained = _download(on_the_hub["id"], on_the_hub["revision"])
    if not is_file(folder / MANIFEST) and is_file(folder / beir_folder.QUERIES_FILE):
        return Release(folder, *beir_folder.read(folder))
    manifest = verified_manifest(folder, partly=True)
    lacking = [table for table in manifest.tables if not has_file(folder, table)]
    if lacking:
        what = f"{len(lacking)} of {len(manifest.tables)} tables were not downloaded, first {lacking[0].path}"
        warnings.warn(f"{where} is not whole: {what}. What needs them is left out", PartialRelease, stacklevel=2)
    return Release(folder, manifest, obtained=obtained)


def _download(repository: str, revision: str | None) -> tuple[Path, str]:
    """The folder of one commit of a dataset on the Hub, and how it was obtained, where nobody could ask the Hub.

    Without the Hub, the commit that was taken last time is taken from the cache; a tag or a commit names what cannot
    have changed, so that nothing need be said of it.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError
    except ModuleNotFoundError:
        raise ReleaseError(
            f"{repository} is not a folder, and the Hub needs a package", do="In a clone, run: pip install '.[hub]'"
        ) from None

    from eval_kit.files import hub

    source = repository if revision is None else f"{repository} at {revision}"
    pin = revision if revision is not None and _FIXED_REVISION.fullmatch(revision) else None
    try:
        # asked first: snapshot_download takes what is in its cache, without a word, where the Hub does not answer
        commit = str(HfApi().dataset_info(repository, revision=revision).sha)
        if not _FIXED_REVISION.fullmatch(commit):
            raise ValueError(hub.UNREADABLE)
        folder, obtained = _snapshot(repository, pin or revision or "main"), ""
    except ReleaseError:
        raise
    except Exception as error:  # on an invalid answer, the client library raises errors of every kind
        cached_folder = None
        if hub.is_away(error) or (pin and not isinstance(error, RevisionNotFoundError)):
            with suppress(LocalEntryNotFoundError):
                cached_folder = _snapshot(repository, pin or revision or "main", local_files_only=True)
        if cached_folder is None:
            raise ReleaseError(f"Could not download {source} from the Hub", _why(error)) from error
        folder, obtained = cached_folder, "" if pin else f"from the local cache: {source}, commit {cached_folder.name}"
    version = read_manifest(folder).version
    if pin and pin.startswith("v") and pin != f"v{version}":
        raise ReleaseError(f"The Hub has version {version} under the tag of {source}", do="Name another revision")
    return folder, obtained


def _snapshot(repository: str, revision: str, local_files_only: bool = False) -> Path:
    """The folder of a dataset in the local cache, once all that its manifest names is there."""
    from huggingface_hub import HfApi

    download = partial(HfApi().snapshot_download, repository, repo_type="dataset", local_files_only=local_files_only)
    folder = Path(download(revision=revision, allow_patterns=MANIFEST))  # which also notes the commit of a branch
    if not (folder / MANIFEST).is_file():
        raise ReleaseError(f"{repository} is not a release, as it has no {MANIFEST}")
    tables = map(attrgetter("path"), read_manifest(folder).tables)
    return Path(download(revision=folder.name, allow_patterns=[MANIFEST, *tables]))


def _why(error: Exception) -> str:
    from huggingface_hub.errors import RepositoryNotFoundError

    from eval_kit.files import hub

    why = hub.reason(error) or hub.UNREADABLE
    if isinstance(error, RepositoryNotFoundError):
        return f"{why}. There is no release folder of that name here either"
    return why
