"""A release's test sets in other tools' formats: BEIR folders, or TREC topics and qrels."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl

from eval_kit import atomic
from eval_kit.errors import UserError
from eval_kit.release import Release, TestSet


def export(release: Release, out: Path, format: str) -> list[Path]:
    """Write every test set to its own folder below ``out``.

    ``beir``: ``queries.jsonl``, ``qrels/test.tsv``, and ``corpus.jsonl`` where the release embeds its passages
    (elsewhere the passages are those of the manifest's ir_datasets collection). ``trec``: ``topics.tsv`` and
    ``qrels.txt``.

    Returns:
        The folders written.

    Raises:
        UserError: an unknown format, or a folder that cannot be written.
    """
    formats: dict[str, Callable[[Release, TestSet, Path], None]] = {"beir": _beir, "trec": _trec}
    if format not in formats:
        raise UserError(f"unknown format {format!r}; there are {', '.join(formats)}")
    folders = []
    for test_set in release.test_sets.values():
        folder = out / test_set.name
        try:
            (folder / "qrels" if format == "beir" else folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
        formats[format](release, test_set, folder)
        folders.append(folder)
    return folders


def _beir(release: Release, test_set: TestSet, folder: Path) -> None:
    if "passages" in release.configs:
        passages = release.table("passages", "passages").iter_rows()
        _write_lines(folder / "corpus.jsonl", (_json(_id=one, title="", text=text) for one, text in passages))
    queries = _queries(release, test_set).iter_rows()
    _write_lines(folder / "queries.jsonl", (_json(_id=one, text=text) for one, text in queries))
    rows = ("\t".join(map(str, row)) for row in _judged(release, test_set).iter_rows())
    _write_lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *rows])


def _trec(release: Release, test_set: TestSet, folder: Path) -> None:
    _write_lines(folder / "topics.tsv", ("\t".join(row) for row in _queries(release, test_set).iter_rows()))
    judged = _judged(release, test_set).iter_rows()
    _write_lines(folder / "qrels.txt", (f"{query} 0 {passage} {grade}" for query, passage, grade in judged))


def _queries(release: Release, test_set: TestSet) -> pl.DataFrame:
    entry = next(one for one in release.manifest["test_sets"] if one["name"] == test_set.name)
    texts = release.table(entry["config"], entry["split"]).select("query_id", "text").unique("query_id")
    return test_set.queries.to_frame("query_id").join(texts, on="query_id", how="left", maintain_order="left")


def _judged(release: Release, test_set: TestSet) -> pl.DataFrame:
    return release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(test_set.queries.implode()))


def _json(**fields: str) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    atomic.write_text(path, "".join(line + "\n" for line in lines))
