"""Parts of a release whose authors state no licence: published with their permission, or left out.

A release may be built from them for oneself. Who passes it on says by name whose permission they have;
the published card repeats it, and what was left out is listed as missing there.
"""

from collections.abc import Collection

from msgspec.structs import replace

from builder.card import source_of
from builder.collection import LEFT_OUT, UNSTATED
from builder.release import VARIATIONS
from eval_kit.authors.draft import with_digest
from eval_kit.documents import Lack, Manifest
from eval_kit.errors import UserError
from eval_kit.sentences import joined


def permitted_part(manifest: Manifest, permitted: Collection[str], left_out: Collection[str]) -> Manifest:
    """What of a release may be published, with remarks on whose permission there is.

    Both are sources without a stated licence: authors permit the publication of those ``permitted``; the tables of
    those ``left_out`` are not published, nor the test sets and variations that rest on them.
    """
    of_source = _tables_by_source(manifest)
    for name in (*permitted, *left_out):
        if name not in of_source or (name in permitted and name in left_out):
            why = "is both permitted and left out" if name in of_source else "is not a source without a stated licence"
            raise UserError(f"{name} {why}", do=f"Choose from: {', '.join(of_source)}" if of_source else "")
    if unclear := sorted(of_source.keys() - {*permitted, *left_out}):
        raise UserError(
            f"{joined(unclear)} {'states' if len(unclear) == 1 else 'state'} no licence",
            do="For each, add --with-permission NAME if its authors permit the publication, or --without NAME",
        )
    if not of_source:
        return manifest
    removed = set().union(*(of_source[name] for name in left_out))
    test_sets = [entry for entry in manifest.test_sets if not {entry.table, ("qrels", entry.qrels)} & removed]
    if not test_sets:
        raise UserError(f"Without {joined(list(left_out))}, no test set is left")
    bases = {entry.name for entry in test_sets}
    kept = [entry for entry in manifest.variations if entry.base in bases and (VARIATIONS, entry.split) not in removed]
    removed |= {(VARIATIONS, entry.split) for entry in manifest.variations if entry not in kept}
    tables = [table for table in manifest.tables if table.key not in removed]
    used = set().union(*(table.rule.inputs for table in tables))
    said = [f"{name} states no licence; its authors permit the publication, the publisher says" for name in permitted]
    part = replace(
        manifest,
        tables=tables,
        test_sets=test_sets,
        variations=kept,
        inputs=[record for record in manifest.inputs if record.id in used],
        missing=[*manifest.missing, *(Lack(f"the parts of {name}", LEFT_OUT) for name in dict.fromkeys(left_out))],
        remarks=[*manifest.remarks, *said],
    )
    return with_digest(part)


def _tables_by_source(manifest: Manifest) -> dict[str, set[tuple[str, str]]]:
    """The tables that rest on files without a stated licence, by the repository or collection of those files."""
    without_licence = {record.id for record in manifest.inputs if record.licence in UNSTATED}
    tables: dict[str, set[tuple[str, str]]] = {}
    for table in manifest.tables:
        for file in without_licence.intersection(table.rule.inputs):
            tables.setdefault(source_of(file, manifest), set()).add(table.key)
    return dict(sorted(tables.items()))
