"""The user's own wordings of a test set's queries, as a variation of a release."""

from pathlib import Path

from builder.release import VARIATIONS, Rule, Table, add_variations
from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.files.formats import by_id, read_queries
from eval_kit.release import Release, Variation, verified_manifest


def add(folder: Path, file: Path, base: str, name: str, replica: int = 1, licence: str = "own") -> Release:
    """Add a file of wordings to a release.

    Args:
        folder: the release.
        file: TSV of query id and text; the ids are those of ``base``.
        base: the test set that is reworded.
        name: ``<family>.<method>``, such as ``typo.mine``.
        replica: number of the draw, for several files of one method.
        licence: of the wordings.

    Raises:
        UserError: the name or test set is unknown, the file is not as expected, or holds other queries.
    """
    release = Release(folder, verified_manifest(folder))
    family, dot, method = name.partition(".")
    if not (dot and all(part.isascii() and part.isidentifier() and part.islower() for part in (family, method))):
        raise UserError(f"--name {name}: expected <family>.<method> in a-z, 0-9 and _, such as typo.mine")
    if base not in release.test_sets:
        raise UserError(f"{folder}: has no test set {base!r}; it has {', '.join(release.test_sets)}")
    queries = read_queries(file)
    strangers = queries.join(release.queries(base), on="query_id", how="anti")
    if strangers.height:
        raise UserError(f"{file}: query {strangers['query_id'][0]} is not in {base} ({strangers.height:,} are not)")
    split = f"{base}_{family}_{method}_{replica}".replace(".", "_")
    source = f"{file.name} (sha256 {file_sha256(file)[:16]})"
    rule = Rule(f"the wordings of {file.name}", source, (), {"sha256": file_sha256(file)})
    variation = Variation(base, family, method, replica, split, None, source, licence)
    table = Table(VARIATIONS, split, by_id(queries, "query_id"), rule)
    return Release(folder, add_variations(folder, [variation], [table]))
