"""A release's test sets in other tools' formats: BEIR folders, or TREC topics and qrels."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.release import Release


def export(release: Release, out: Path, format: str) -> list[Path]:
    """Write every test set, and every variation of its queries, to its own folder below ``out``.

    ``beir``: ``queries.jsonl``, ``qrels/test.tsv``, and ``corpus.jsonl`` where the release embeds its passages
    (elsewhere the passages are those of the manifest's ir_datasets collection), as BEIR's ``GenericDataLoader`` reads
    them; with the judgements as ``qrels/test.jsonl`` too and a ``README.md`` that names the configs, the folder is a
    data set for MTEB's retrieval tasks. The corpora of all folders are one file, where the disk can link. ``trec``:
    ``topics.tsv``, which Pyserini reads as topics too, and ``qrels.txt``.

    Returns:
        The folders written.

    Raises:
        UserError: an unknown format, or a folder that cannot be written.
    """
    formats: dict[str, Callable[[Release, str, pl.DataFrame, Path], None]] = {"beir": _beir, "trec": _trec}
    if format not in formats:
        raise UserError(f"unknown format {format!r}; there are {', '.join(formats)}")
    folders = []
    for name, qrels, queries in _to_export(release):
        folder = out / name
        try:
            (folder / "qrels" if format == "beir" else folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
        formats[format](release, qrels, queries, folder)
        folders.append(folder)
    return folders


def _to_export(release: Release) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Name, split of the judgements, and queries (``query_id`` and ``text``)."""
    for test_set in release.test_sets.values():
        yield test_set.name, test_set.qrels, release.queries(test_set.name)
    for variation in release.variations.values():
        yield variation.full_name, release.test_sets[variation.base].qrels, release.wordings(variation)


def _beir(release: Release, qrels: str, queries: pl.DataFrame, folder: Path) -> None:
    files = {"queries": "queries.jsonl", "qrels": "qrels/test.jsonl"}
    if "passages" in release.configs:
        files["corpus"] = "corpus.jsonl"
        _corpus(release, folder)
    rows = (_json(_id=query_id, text=text) for query_id, text in queries.iter_rows())
    _write_lines(folder / files["queries"], rows)
    judged = _judged(release, qrels, queries)
    _write_lines(folder / "qrels/test.tsv", ("\t".join(map(str, row)) for row in [judged.columns, *judged.iter_rows()]))
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


def _trec(release: Release, qrels: str, queries: pl.DataFrame, folder: Path) -> None:
    _write_lines(folder / "topics.tsv", ("\t".join(row) for row in queries.iter_rows()))
    judged = _judged(release, qrels, queries).iter_rows()
    _write_lines(folder / "qrels.txt", (f"{query} 0 {passage} {grade}" for query, passage, grade in judged))


def _judged(release: Release, qrels: str, queries: pl.DataFrame) -> pl.DataFrame:
    """The queries' part of the judgements; the table has BEIR's columns, query-id, corpus-id and score."""
    return release.table("qrels", qrels).filter(pl.col("query-id").is_in(queries["query_id"].implode()))


def _json(**fields: str | int) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    atomic.write_text(path, "".join(line + "\n" for line in lines))
