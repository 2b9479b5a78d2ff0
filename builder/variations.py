"""Variations of a test set's queries, added to a release: typos, and texts of the user's own."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from builder.release import VARIATIONS, extend, write_table
from eval_kit.authors.draft import Table
from eval_kit.documents import Rule
from eval_kit.errors import UserError, choices
from eval_kit.files.digests import file_sha256
from eval_kit.files.formats import by_id, read_queries
from eval_kit.models import typos
from eval_kit.release import Release, Variation, verified_manifest
from eval_kit.sentences import counted

type Made = Iterable[tuple[Variation, Table]]


def add_typos(folder: Path, test_sets: Sequence[str], replicas: int = 1, seed: int = 13) -> tuple[Release, list[str]]:
    """Add typos of every kind, as variations of some test sets: the release with them, and their names."""
    release = _open(folder, test_sets)
    wordings: list[tuple[Variation, Table]] = []
    for name in dict.fromkeys(test_sets):  # each once, however often it was named
        wordings += typos.plant(name, release.queries(name), replicas, seed)
    return _add(folder, wordings)


def add_texts(
    folder: Path, files: Sequence[Path], base: str, name: str, licence: str = "own"
) -> tuple[Release, list[str]]:
    """Add files of other texts for a test set's queries to a release, one replica each.

    The files are TSVs of query id and text; ``name`` is ``<family>.<method>``, such as ``typo.mine``. Returns the
    release with them, and their names.
    """
    release = _open(folder, [base])
    family, dot, method = name.partition(".")
    if not (dot and all(part.isascii() and part.isidentifier() and part.islower() for part in (family, method))):
        raise UserError(f"--name {name} is not <family>.<method> in a-z, 0-9 and _", do="Write typo.mine, for example")
    wordings = []
    for replica, file in enumerate(files, 1):
        queries = read_queries(file)
        strangers = queries.join(release.queries(base), on="query_id", how="anti")
        if strangers.height:
            raise UserError(
                f"{counted(strangers.height, 'query')} of {file} {'is' if strangers.height == 1 else 'are'} not in "
                f"{base}, such as {strangers['query_id'][0]}"
            )
        split = f"{base}_{family}_{method}_{replica}".replace(".", "_")
        sha256 = file_sha256(file)
        source = f"{file.name} (sha256 {sha256[:16]})"
        rule = Rule(f"the wordings of {file.name}", source, parameters={"sha256": sha256})
        variation = Variation(base, family, method, replica, split, None, source, licence, queries.height)
        wordings.append((variation, Table(VARIATIONS, split, by_id(queries, "query_id"), rule)))
    return _add(folder, wordings)


def _open(folder: Path, test_sets: Iterable[str]) -> Release:
    release = Release(folder, verified_manifest(folder))
    for name in test_sets:
        if name not in release.test_sets:
            raise UserError(f"{folder} has no test set {name!r}", do=f"Choose from: {choices(release.test_sets)}")
    return release


def _add(folder: Path, wordings: Made) -> tuple[Release, list[str]]:
    variations, tables = zip(*wordings, strict=True)
    manifest = extend(folder, lambda staging: [write_table(staging, table) for table in tables], variations)
    return Release(folder, manifest), [variation.full_name for variation in variations]
