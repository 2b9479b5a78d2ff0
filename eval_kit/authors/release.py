"""The release that is there without being built: the published test sets, fetched from their authors at first use.

Which files they are, and their bytes, is fixed by git blob ids; what they make is kept in the cache as a release.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from msgspec.structs import replace

from eval_kit.authors.sources import ANSERINI, RESTTEST, SHIFT_TEST, SourceFile, declared_files
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.files.cache import VARIABLE, cache_folder
from eval_kit.files.digests import file_sha256
from eval_kit.release import MANIFEST

if TYPE_CHECKING:
    from eval_kit.authors.draft import Draft

UPSTREAM = "MS_MARCO_SHIFT_UPSTREAM"
"""Names a folder with the authors' files at ``owner/name/path``, to take them from in place of the web."""
_WAYS = (
    f"Go online, set ${UPSTREAM} to a folder with the authors' files, or name a release with "
    "--release (python -m builder build published makes one)"
)


def published_test_sets(again: bool = False) -> Path:
    """The folder of the published test sets in the cache; made at first use, or ``again``.

    Those whose authors state no licence (the Chameleons, some variations) are not among them. They come
    from the folder that :data:`UPSTREAM` names, if any, else from the web.
    """
    wanted = {id: file for id, file in declared_files().items() if _is_of_test_sets(id)}
    known_by = hashlib.sha256("\n".join(file.git_blob for file in wanted.values()).encode()).hexdigest()
    folder = cache_folder() / f"test-sets-{known_by[:16]}"
    if again or not (folder / MANIFEST).is_file():
        with disk_errors(folder, f"Set ${VARIABLE} to another folder"), atomic.lock(folder):
            if again or not (folder / MANIFEST).is_file():  # another process may have made it meanwhile
                _make(folder, wanted, os.environ.get(UPSTREAM))
    return folder


def _make(folder: Path, wanted: Mapping[str, SourceFile], upstream: str | None) -> None:
    from eval_kit.authors.lists import TestLists  # the web and all else that is needed once

    owners = sorted({f"{file.repository} ({file.licence})" for file in wanted.values()})
    where = f"from {upstream}" if upstream else "from the web (5 MB)"
    print(
        f"eval_kit: No release is named, so the kit takes the published test sets {where}, once, to {folder}. Sources: "
        f"{', '.join(owners)}. MS MARCO's and TREC's data are for non-commercial research.",
        file=sys.stderr,
    )
    lists = TestLists(dict(wanted), Path(upstream) if upstream else None)
    tables = list(lists.test_tables(chameleons=False))
    if lists.missing:
        first = lists.missing[0]
        raise UserError(f"Could not get {first.what}", first.because, _WAYS)
    with atomic.folder(folder) as staging:
        _write(lists.to_draft(tables), staging)


def _is_of_test_sets(id: str) -> bool:
    is_of_restest = id.startswith(RESTTEST) and not id.endswith("/train-qrel.txt")
    return is_of_restest or id.startswith((f"{SHIFT_TEST}/", f"{ANSERINI}/"))


def _write(draft: "Draft", folder: Path) -> None:
    from eval_kit.authors.draft import describe

    entries = []
    for table in draft.tables:
        path = folder / table.path
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_parquet(path, table.frame.with_columns(pl.col(pl.Enum).cast(pl.String)))
        entries.append(replace(table.entry, sha256=file_sha256(path)))
    manifest = replace(describe(draft), tables=entries)
    (folder / MANIFEST).write_text(json.dumps(manifest.as_json(), indent=1, ensure_ascii=False), encoding="utf-8")
