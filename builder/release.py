"""Write a release folder: parquet tables, dataset card and manifest, whole or not at all."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import polars as pl
from msgspec.structs import replace

from builder import card
from builder.features import features
from builder.reports import AUDIT
from eval_kit.authors.draft import Draft, Table, describe, with_digest
from eval_kit.documents import Manifest, TableEntry, Variation
from eval_kit.errors import UserError
from eval_kit.files import atomic, strict_json
from eval_kit.files.digests import file_sha256
from eval_kit.release import MANIFEST, NAME, verified_manifest

VARIATIONS = "variations"
_CONFIGS = list(card.HOLDS)
_REPORTS = (AUDIT, "reports/given.tsv", "reports/topics.tsv", "reports/train_join.tsv")


def in_order(tables: Iterable[Table]) -> list[Table]:
    """The tables, their configs in the order in which a release lists them."""
    return sorted(tables, key=lambda table: _CONFIGS.index(table.config))


def write(draft: Draft, out: Path) -> Manifest:
    """Write the draft to the folder ``out``, replacing any release there.

    The new folder is completely written to disk before it takes the old one's place. A build that is killed
    leaves the old release whole; if that was between the two renames, the next program to open the release restores
    it. Two builds at once leave one whole release.
    """
    with _replacing(out) as staging:
        if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
            if (kind := _kind(out)) is None:
                raise UserError(f"{out} exists and is not a release, so nothing was written", do="Choose another --out")
            if kind != draft.kind:
                raise UserError(f"{out} is a {kind} release, not a {draft.kind} one", do="Choose another --out")
        manifest = replace(describe(draft), tables=[write_table(staging, table) for table in draft.tables])
        for name, text in draft.reports.items():
            (staging / "reports").mkdir(exist_ok=True)
            (staging / "reports" / name).write_text(text, encoding="utf-8")
        _describe_itself(staging, manifest)
        return manifest


def summary(out: Path, manifest: Manifest) -> list[str]:
    """A summary of what was written to ``out``."""
    return [
        f"{out}: {manifest.kind} release {manifest.version}, {len(manifest.tables)} tables, "
        f"{len(manifest.test_sets)} test sets, digest {manifest.digest[:16]}",
        *(f"  remark: {remark}" for remark in manifest.remarks),
        *(f"  missing: {part.what}: {part.because}" for part in manifest.missing),
    ]


def extend(folder: Path, add: Callable[[Path], list[TableEntry]], variations: Sequence[Variation] = ()) -> Manifest:
    """Replace the release in ``folder`` by one with the tables that ``add`` writes to a folder, and the variations.

    Those of the same names are replaced. Everything else is unchanged, except that the card is rendered anew.
    """
    with _replacing(folder) as staging:
        manifest = verified_manifest(folder)
        shutil.copytree(folder, staging, dirs_exist_ok=True)
        entries = add(staging)
        keys = [entry.key for entry in entries]
        tables = [entry for entry in manifest.tables if entry.key not in keys]
        others = [entry for entry in manifest.variations if (VARIATIONS, entry.split) not in keys]
        manifest = with_digest(replace(manifest, tables=[*tables, *entries], variations=[*others, *variations]))
        _describe_itself(staging, manifest)
        return manifest


def copy(folder: Path, out: Path, manifest: Manifest, with_reports: bool) -> None:
    """Copy the release in ``folder`` as far as ``manifest`` describes it; its reports, if they are of that content."""
    for name in files(folder, manifest):
        if name.startswith("data/") or (with_reports and name in _REPORTS):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, out / name)
    _describe_itself(out, manifest)


def files(folder: Path, manifest: Manifest) -> list[str]:
    """The sorted names of the files that make up a release: manifest, card, licences, tables and reports."""
    reports = [name for name in _REPORTS if (folder / name).is_file()]
    return sorted([card.CARD, card.LICENCES, MANIFEST, *(table.path for table in manifest.tables), *reports])


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """An empty folder that replaces ``out`` if all goes well; meanwhile no other process replaces it."""
    try:
        with atomic.lock(out), atomic.folder(out) as staging:
            yield staging
    except OSError as error:
        raise UserError(f"Could not write {out}: {error.strerror or error}", "Nothing was changed") from error


def _describe_itself(folder: Path, manifest: Manifest) -> None:
    msgspec.convert(manifest.as_json(), Manifest)
    for name, text in card.texts(folder, manifest).items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / MANIFEST).write_text(
        json.dumps(manifest.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def write_table(folder: Path, table: Table) -> TableEntry:
    """Write the table's file to a release's folder; returns its entry.

    Labels are written by name: other readers of parquet know no codes, and ``datasets`` encodes names by the card.
    """
    import pyarrow.parquet as pq

    path = folder / table.path
    path.parent.mkdir(parents=True, exist_ok=True)
    as_stored = [replace(column, type="string", labels=None) if column.labels else column for column in table.columns]
    names = table.frame.with_columns(pl.col(pl.Enum).cast(pl.String))
    pq.write_table(names.to_arrow().cast(features(as_stored).arrow_schema), path, compression="zstd")
    return replace(table.entry, sha256=file_sha256(path))


def _kind(out: Path) -> str | None:
    """The kind of the release in ``out``; None for a link, or for another tool's folder even if it has a manifest."""
    try:
        manifest = strict_json.read(out / MANIFEST)
    except UserError:
        return None
    ours = isinstance(manifest, dict) and manifest.get("name") == NAME and not out.is_symlink()
    return str(manifest.get("kind")) if ours else None
