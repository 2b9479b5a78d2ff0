"""Files beside a release's tables for other tools: each test set's queries and judgements, and tasks for the Hub.

The former are below ``benchmarks/``, in the columns that ir_measures reads. The Hub's benchmark datasets list their
tasks in ``eval.yaml``.
"""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.exchange import hub_results
from eval_kit.files import atomic
from eval_kit.files.opening import is_file
from eval_kit.files.text import read_utf8
from eval_kit.release import Release, title

FOLDER = "benchmarks"
EVAL = "eval.yaml"
KINDS = ("queries", "qrels")
FRAMEWORK = "mteb"
"""The one framework on the Hub's list that scores retrieval."""


def paths(manifest: Manifest) -> list[str]:
    """The files that :func:`write` makes."""
    return [EVAL, *(_path(entry.name, kind) for entry in manifest.test_sets for kind in KINDS)]


def write(folder: Path, manifest: Manifest) -> None:
    """Write those files of the release in ``folder`` that it lacks, in place.

    Raises:
        OSError: the folder cannot be written.
    """
    release = Release(folder, manifest)
    for path, frame in _frames(release):
        if not _holds(folder / path, frame):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            atomic.write_parquet(folder / path, frame)
    (folder / EVAL).write_text(_eval_yaml(release), encoding="utf-8")


def check(folder: Path, manifest: Manifest) -> None:
    """Check that the files match this manifest.

    Raises:
        UserError: naming the first that does not.
    """
    release = Release(folder, manifest)
    wrong = next((path for path, frame in _frames(release) if not _holds(folder / path, frame)), None)
    try:
        if read_utf8(folder / EVAL) != _eval_yaml(release):
            wrong = EVAL
    except UserError:
        wrong = EVAL
    if wrong:
        raise UserError(
            f"{folder / wrong}: is not that of the release; run 'python -m builder card {folder}' to write it again"
        )


def _frames(release: Release) -> Iterator[tuple[str, pl.DataFrame]]:
    for name, test_set in release.test_sets.items():
        queries = release.queries(name)
        yield _path(name, "queries"), queries
        judgements = release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(queries["query_id"].implode()))
        yield _path(name, "qrels"), judgements.rename({"passage_id": "doc_id"})


def _path(test_set: str, kind: str) -> str:
    return f"{FOLDER}/{test_set}/{kind}.parquet"


def _holds(path: Path, frame: pl.DataFrame) -> bool:
    try:
        table = pl.read_parquet(path, hive_partitioning=False) if is_file(path) else pl.DataFrame()
        return table.sort(frame.columns).equals(frame.sort(frame.columns))
    except (OSError, pl.exceptions.PolarsError):
        return False


def _eval_yaml(release: Release) -> str:
    import yaml

    description = (
        "What a retrieval model loses on queries that its training lacks, by topic, wh-word, length and distance. "
        "Out: models that never saw the like of the query; Rel Loss: (In - Out) / In, the lower the better."
    )
    document = {
        "name": title(release.manifest),
        "description": description,
        "evaluation_framework": FRAMEWORK,
        "tasks": hub_results.tasks(release),
    }
    return yaml.safe_dump(document, sort_keys=False, width=1_000)
