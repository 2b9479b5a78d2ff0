"""Download a dataset of BEIR: the zip resumes and is verified by md5; its folder appears whole or not at all."""

import shutil
import zipfile
from collections.abc import Iterator
from itertools import filterfalse
from pathlib import Path, PurePosixPath

from builder.sources.fetch import Advance, UnavailableError, download_verified
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.files.beir import read_documents
from eval_kit.release import open_release
from eval_kit.release.beir_suite import BeirDataset, datasets, parts, split_of
from eval_kit.tables.table import Column, Table


def install(dataset: BeirDataset, out: Path, advance: Advance = lambda count: None) -> Path:
    """The dataset's folder below ``out``; downloaded and unpacked, unless it exists.

    Processes that need it wait for each other. The zip is removed once it is unpacked.

    Raises:
        UnavailableError: BEIR does not distribute it; no connection, a refusal, or bytes with another md5.
        UserError: no md5 is known; the zip holds anything but the dataset's folder, or ``out`` cannot be written.
    """
    target = out / dataset.name
    if target.is_dir():
        return target
    if dataset.url is None:
        raise UnavailableError(f"{dataset.name}: {dataset.remarks[0]}")
    if dataset.md5 is None:
        raise UserError(f"{dataset.name}: the md5 of {dataset.url} is not known here; give it with --md5")
    with disk_errors(target), atomic.lock(target):
        if target.exists():
            return target
        archive = out / f"{dataset.name}.zip"
        download_verified(dataset.url, archive, "md5", dataset.md5, advance)
        with atomic.folder(target) as staging:
            _unpack(archive, dataset.name, staging)
        archive.unlink()
    return target


def dataset_table() -> Table:
    """Every dataset with domain, size (as in BEIR's Table 1), licence, and whether it can be downloaded."""
    columns = [Column("dataset"), Column("domain"), Column("passages", "number"), Column("queries", "number")]
    rows = []
    for dataset in datasets().values():
        sizes = [f"{dataset.passages:,}", f"{dataset.queries:,}"]
        how = ("yes" if dataset.md5 else "with --md5") if dataset.url else "no"
        rows.append([dataset.name, dataset.domain, *sizes, dataset.licence, how])
    return Table([*columns, Column("licence"), Column("download")], [rows])


def remarks(dataset: BeirDataset, folder: Path) -> list[str]:
    """Remarks on the dataset, sizes that differ from BEIR's Table 1, and judged passages that are not in the corpus."""
    passages = queries = absent = 0
    for part in parts(folder):
        qrels = open_release(part).qrels(split_of(part))
        missing = set(qrels["passage_id"])
        for passage, _, _ in read_documents(part / "corpus.jsonl"):
            passages += 1
            missing.discard(passage)
        absent += len(missing)
        queries += qrels["query_id"].n_unique()
    sizes = (("passages", passages, dataset.passages), ("queries", queries, dataset.queries))
    differing = [f"{have:,} {what}, where Table 1 has {paper:,}" for what, have, paper in sizes if have != paper]
    strangers = [f"{absent:,} judged passages are not in corpus.jsonl; nothing can find them"] if absent else []
    return [*dataset.remarks, *differing, *strangers]


def _unpack(archive: Path, name: str, staging: Path) -> None:
    """Unpack the files below ``name``/ in the archive into ``staging``."""
    try:
        with zipfile.ZipFile(archive) as zip_file:
            for entry, path in _files(zip_file, name):
                destination = staging / path
                destination.parent.mkdir(parents=True, exist_ok=True)
                with zip_file.open(entry) as content, destination.open("wb") as out:
                    shutil.copyfileobj(content, out, 1 << 20)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{archive}: is not a zip file that can be unpacked: {error}") from error


def _files(zip_file: zipfile.ZipFile, name: str) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """Each file with its path below the folder ``name``.

    Raises:
        UserError: a file that is not below it, or none at all.
    """
    entries = list(filterfalse(zipfile.ZipInfo.is_dir, zip_file.infolist()))
    if not entries:
        raise UserError(f"{zip_file.filename}: holds no files")
    for entry in entries:
        path = PurePosixPath(entry.filename)
        if path.parts[:1] != (name,) or len(path.parts) < 2 or ".." in path.parts:
            raise UserError(f"{zip_file.filename}: {entry.filename} is not in the folder {name}/")
        yield entry, path.relative_to(name)
