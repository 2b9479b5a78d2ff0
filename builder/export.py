"""Test and training sets of a release in other tools' formats: BEIR's and Tevatron's."""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from builder.card import CARD, LICENCES, licence_text
from eval_kit.errors import UserError, choices, disk_errors
from eval_kit.files import atomic
from eval_kit.files.formats import check_ids
from eval_kit.release import Release, title
from eval_kit.search.passages import has_passages, of_file
from eval_kit.search.passages import passages as release_passages
from eval_kit.sentences import counted
from eval_kit.shifts import TRAINED_FOR, Shift

QRELS = ("qrels/test.tsv", "qrels/test.jsonl", "qrels/train.tsv", "qrels/train.jsonl")
FORMATS = {
    "beir": ["queries.jsonl", "corpus.jsonl", CARD, LICENCES, *QRELS],
    "tevatron": ["queries.jsonl", "corpus.jsonl", "qrels.txt", CARD, LICENCES],
}
"""The files that a folder of each format may hold."""
NAMES = {"beir": "BEIR", "tevatron": "Tevatron"}


@dataclass(frozen=True)
class ExportedFolder:
    """The queries of one folder, the split of the release that judges them, and the other tool's name for that."""

    name: str
    queries: pl.DataFrame
    judgements: str
    split: str = "test"


def export(
    release: Release,
    out: Path,
    format: str,
    test_sets: Collection[str] = (),
    training_sets: Collection[str] = (),
    passages: Path | None = None,
    strict: bool = False,
) -> list[Path]:
    """Write test sets, variations of their queries, and training queries, each to its own folder below ``out``.

    ``beir``: ``queries.jsonl``, ``qrels/test.tsv`` (for training queries ``qrels/train.tsv``), and ``corpus.jsonl``
    if the release embeds its passages or a file of them is given, as BEIR's ``GenericDataLoader`` reads them. It also
    has the judgements as ``qrels/test.jsonl`` and a ``README.md`` that names the configs, and so is a data set for
    MTEB's retrieval tasks. Every folder's ``README.md`` says what it is, and its ``LICENSE.md`` the licences. All
    folders share one corpus file, where the disk can link. ``tevatron``: ``queries.jsonl`` and ``corpus.jsonl``, which
    its ``encode`` reads, and ``qrels.txt``. All folders are written before any of them takes its name and replaces an
    older export of the same format.

    Without names, all test sets and variations are written. ``passages`` is a file of id, tab and text, such as MS
    MARCO's collection.tsv; ``strict`` leaves the test queries of all shifts out of training queries.
    """
    if format not in FORMATS:
        raise UserError(f"Unknown format {format!r}", do=f"Choose from: {', '.join(FORMATS)}")
    corpus: Path | None = None
    folders = {out / dataset.name: dataset for dataset in _exports(release, test_sets, training_sets, strict)}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with atomic.lock(out), ExitStack() as stack:
            for folder in folders:
                _refuse_to_replace(folder, FORMATS[format])
            for folder, dataset in folders.items():
                staging = stack.enter_context(atomic.folder(folder))
                in_dataset = pl.col("query-id").is_in(dataset.queries["query_id"].implode())
                qrels = release.table("qrels", dataset.judgements).filter(in_dataset)
                for ids in (dataset.queries["query_id"], *qrels.get_columns()[:2]):
                    check_ids(ids)
                corpus = _corpus(release, passages, staging / "corpus.jsonl", corpus, format)
                atomic.write_text(staging / LICENCES, licence_text(release.manifest))
                atomic.write_text(staging / CARD, _about(release, dataset.name, format))
                if format == "beir":
                    _beir(release, dataset, qrels, staging, corpus is not None)
                    continue
                _write_rows(staging / "queries.jsonl", dataset.queries.rename({"text": "query"}))
                lines = (f"{query} 0 {passage} {grade}" for query, passage, grade in qrels.iter_rows())
                atomic.write_lines(staging / "qrels.txt", lines)
    return list(folders)


def _refuse_to_replace(folder: Path, files: Collection[str]) -> None:
    """Refuse a folder with files that no export has, naming the first."""
    for path in (folder, *sorted(folder.rglob("*"))):
        if path.exists() and not path.is_dir() and path.relative_to(folder).as_posix() not in files:
            raise UserError(f"{path} is not part of the export that would replace it", do="Choose another --out")


def trainable(release: Release, names: Iterable[str]) -> dict[str, tuple[Shift, str]]:
    """Shift and held-out part of training queries, by their name, such as ``topic.not-c0``."""
    parts = ((shift, part) for shift in TRAINED_FOR.values() for part in shift.training_tables(release))
    training = {f"{shift.name}.{shift.training_name(part)}": (shift, part) for shift, part in parts}
    return _values(release, "training set", names, training)


def _values[Value](release: Release, kind: str, names: Iterable[str], there: Mapping[str, Value]) -> dict[str, Value]:
    """The values of some names; a UserError for one that is not there."""
    for name in names:
        if name not in there:
            raise UserError(
                f"{release.folder} has no {kind} {name}", do=f"Choose from: {choices(sorted(there))}" if there else ""
            )
    return {name: there[name] for name in names}


def _exports(
    release: Release, test_sets: Collection[str], training_sets: Collection[str], strict: bool
) -> list[ExportedFolder]:
    """The sets named, which the release must have; every test set and variation if none are."""
    variations = release.variations
    available = {**release.test_sets, **variations}
    _values(release, "test set or variation", test_sets, available)
    datasets = []
    for name in test_sets if test_sets or training_sets else available:
        base = variations[name].base if name in variations else name
        queries = release.wordings(variations[name]) if name in variations else release.queries(name)
        datasets.append(ExportedFolder(name, queries, release.test_sets[base].qrels))
    for name, (shift, part) in trainable(release, training_sets).items():
        training_queries = shift.training(release, part, strict)
        datasets.append(ExportedFolder(name, training_queries.queries, training_queries.qrels, "train"))
    for dataset in datasets:
        count = dataset.queries.height
        if missing := dataset.queries["text"].null_count():
            raise UserError(
                f"{missing:,} of the {counted(count, 'query')} of {dataset.name} have no text in {release.folder}"
            )
    return datasets


def _beir(release: Release, dataset: ExportedFolder, qrels: pl.DataFrame, folder: Path, with_corpus: bool) -> None:
    files = {"queries": "queries.jsonl", "qrels": f"qrels/{dataset.split}.jsonl"}
    files |= {"corpus": "corpus.jsonl"} if with_corpus else {}
    (folder / "qrels").mkdir()
    _write_rows(folder / files["queries"], dataset.queries.rename({"query_id": "_id"}))
    table = qrels.write_csv(separator="\t", quote_style="never")
    atomic.write_text(folder / "qrels" / f"{dataset.split}.tsv", table)
    _write_rows(folder / files["qrels"], qrels)
    content = {"version": release.version, "description": f"sha256:{release.digest}"}  # new content, new cache
    configs = []
    for config, file in files.items():
        data_files = [{"split": dataset.split, "path": file}]
        configs.append({"config_name": config, **content, "data_files": data_files})
    header = f"---\n{json.dumps({'configs': configs})}\n---\n\n"
    atomic.write_text(folder / CARD, header + (folder / CARD).read_text(encoding="utf-8"))


def _about(release: Release, name: str, format: str) -> str:
    """What a folder says of itself to people."""
    manifest = release.manifest
    of = f"{title(manifest)} {release.version} ({manifest.kind}, content sha256:{release.digest[:16]})"
    return (
        f"# {name}\n\nQueries and judgements of {of}, exported in {NAMES[format]}'s format. This is not the release of "
        f"those who made them: [{LICENCES}]({LICENCES}) names them, and says under which licences their work is.\n"
    )


def _corpus(release: Release, passages: Path | None, path: Path, first: Path | None, format: str) -> Path | None:
    """Write the passages, or link to those already written; None where there are none."""
    if passages is None and not has_passages(release):
        return None
    if first is not None:
        atomic.link_or_copy(first, path)
        return first
    rows = release_passages(release) if passages is None else of_file(passages)
    if format == "beir":
        lines = (_json(_id=id, title="", text=text) for id, text in rows)
    else:
        lines = (_json(docid=id, text=text) for id, text in rows)
    atomic.write_lines(path, lines)
    return path


def _write_rows(path: Path, rows: pl.DataFrame) -> None:
    atomic.write_lines(path, (_json(**row) for row in rows.iter_rows(named=True)))


def _json(**fields: str | int) -> str:
    return json.dumps(fields, ensure_ascii=False)
