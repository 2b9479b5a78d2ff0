"""Parts of a release whose authors state no licence: published with their permission, or left out.

A release may be built from them for oneself. Who passes it on says by name whose permission they have;
the published card repeats it, and what was left out is listed as missing there.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from builder.card import source_of
from builder.collection import LEFT_OUT, UNSTATED
from builder.release import VARIATIONS, copy
from eval_kit.authors.draft import with_digest
from eval_kit.documents import Lack, Manifest
from eval_kit.errors import UserError

type Key = tuple[str, str]


@contextmanager
def publishable(
    folder: Path, manifest: Manifest, permitted: Collection[str], left_out: Collection[str]
) -> Iterator[Path]:
    """The folder to publish: ``folder``, or a copy without what is left out that says whose permission there is.

    Args:
        permitted: sources without a stated licence whose authors permit the publication.
        left_out: sources whose tables, test sets and variations are not published.

    Raises:
        UserError: a source states no licence and is in neither; a name is of no such source, or in both; nothing
            would be left.
    """
    tables = _tables_by_source(manifest)
    for name in (*permitted, *left_out):
        if name not in tables or (name in permitted and name in left_out):
            why = "is both permitted and left out" if name in tables else "is no source without a stated licence"
            raise UserError(f"{folder}: {name} {why}; those sources are {', '.join(tables) or 'none'}")
    if unclear := sorted(tables.keys() - {*permitted, *left_out}):
        raise UserError(
            f"{folder}: no licence is stated by {', '.join(unclear)}; say of each --with-permission NAME if its "
            "authors permit the publication, or --without NAME"
        )
    if not tables:
        yield folder
        return
    part = _without(manifest, tables, left_out)
    if not part.test_sets:
        raise UserError(f"{folder}: without {', '.join(left_out)} no test set is left")
    said = [f"{name} states no licence; its authors permit the publication, the publisher says" for name in permitted]
    with TemporaryDirectory() as temporary:
        out = Path(temporary) / folder.resolve().name
        copy(folder, out, replace(part, remarks=[*part.remarks, *said]), with_reports=part.digest == manifest.digest)
        yield out


def _tables_by_source(manifest: Manifest) -> dict[str, set[Key]]:
    """The tables that rest on files without a stated licence, by the repository or collection of those files."""
    without_licence = {record.id for record in manifest.inputs if record.licence in UNSTATED}
    tables: dict[str, set[Key]] = {}
    for table in manifest.tables:
        for file in without_licence.intersection(table.rule.inputs):
            tables.setdefault(source_of(file, manifest), set()).add(table.key)
    return dict(sorted(tables.items()))


def _without(manifest: Manifest, tables_by_source: Mapping[str, set[Key]], left_out: Collection[str]) -> Manifest:
    """The manifest without some sources' tables, and without what rests on these."""
    removed_tables, missing = set[Key](), [*manifest.missing]
    for name in dict.fromkeys(left_out):
        removed_tables |= tables_by_source[name]
        missing.append(Lack(f"the parts of {name}", LEFT_OUT))
    test_sets = [entry for entry in manifest.test_sets if not {entry.table, ("qrels", entry.qrels)} & removed_tables]
    bases = {entry.name for entry in test_sets}
    variations = []
    for entry in manifest.variations:
        if entry.base in bases and (VARIATIONS, entry.split) not in removed_tables:
            variations.append(entry)
        else:
            removed_tables.add((VARIATIONS, entry.split))
    tables = [table for table in manifest.tables if table.key not in removed_tables]
    files = set().union(*(table.rule.inputs for table in tables))
    return with_digest(
        replace(
            manifest,
            tables=tables,
            test_sets=test_sets,
            variations=variations,
            inputs=[record for record in manifest.inputs if record.id in files],
            missing=missing,
        )
    )
