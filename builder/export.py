"""A release's test sets in other tools' formats: BEIR folders, or TREC topics and qrels."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.release import Release, TestSet


def export(release: Release, out: Path, format: str) -> list[Path]:
    """Write every test set to its own folder below ``out``.

    ``beir``: ``queries.jsonl``, ``qrels/test.tsv``, and ``corpus.jsonl`` where the release embeds its passages
    (elsewhere the passages are those of the manifest's ir_datasets collection), as BEIR's ``GenericDataLoader`` reads
    them; with the judgements as ``qrels/test.jsonl`` too and a ``README.md`` that names the configs, the folder is a
    data set for MTEB's retrieval tasks. The corpora of all folders are one file, where the disk can link. ``trec``:
    ``topics.tsv`` and ``qrels.txt``.

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
    files = {"queries": "queries.jsonl", "qrels": "qrels/test.jsonl"}
    if "passages" in release.configs:
        files["corpus"] = "corpus.jsonl"
        _corpus(release, folder)
    queries = _queries(release, test_set).iter_rows()
    _write_lines(folder / files["queries"], (_json(_id=query_id, text=text) for query_id, text in queries))
    judged = _judged(release, test_set)
    rows = ("\t".join(map(str, row)) for row in [judged.columns, *judged.iter_rows()])
    _write_lines(folder / "qrels/test.tsv", rows)
    _write_lines(folder / files["qrels"], (_json(**row) for row in judged.iter_rows(named=True)))
    content = {"version": release.version, "description": f"sha256:{release.digest}"}  # of other content: not cached
    configs = [
        {"config_name": config, **content, "data_files": [{"split": "test", "path": file}]}
        for config, file in files.items()
    ]
    _write_lines(folder / "README.md", ["---", json.dumps({"configs": configs}), "---"])


def _corpus(release: Release, folder: Path) -> None:
    """Write the passages, or link to those that stand beside already."""
    path = folder / "corpus.jsonl"
    first = folder.parent / next(iter(release.test_sets)) / path.name
    if path != first:
        path.unlink(missing_ok=True)
        try:
            path.hardlink_to(first)
            return
        except OSError:  # a disk without links
            pass
    passages = release.table("passages", "passages").iter_rows()
    _write_lines(path, (_json(_id=passage_id, title="", text=text) for passage_id, text in passages))


def _trec(release: Release, test_set: TestSet, folder: Path) -> None:
    _write_lines(folder / "topics.tsv", ("\t".join(row) for row in _queries(release, test_set).iter_rows()))
    judged = _judged(release, test_set).iter_rows()
    _write_lines(folder / "qrels.txt", (f"{query} 0 {passage} {grade}" for query, passage, grade in judged))


def _queries(release: Release, test_set: TestSet) -> pl.DataFrame:
    entry = next(entry for entry in release.manifest["test_sets"] if entry["name"] == test_set.name)
    texts = release.table(entry["config"], entry["split"]).select("query_id", "text").unique("query_id")
    return test_set.queries.to_frame("query_id").join(texts, on="query_id", how="left", maintain_order="left")


def _judged(release: Release, test_set: TestSet) -> pl.DataFrame:
    """The test set's part of the judgements; the table has BEIR's columns, query-id, corpus-id and score."""
    qrels = release.table("qrels", test_set.qrels)
    return qrels.filter(pl.col("query-id").is_in(test_set.queries.implode()))


def _json(**fields: str | int) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    atomic.write_text(path, "".join(line + "\n" for line in lines))
