"""Download a dataset of BEIR: the zip resumes and is verified by md5; its folder appears whole or not at all."""

import zipfile
from pathlib import Path

from eval_kit.authors.fetch import Advance, UnavailableError, download_verified
from eval_kit.errors import UserError, disk_errors
from eval_kit.files import atomic
from eval_kit.release.beir_suite import BeirDataset, datasets
from eval_kit.tables.table import Column, Table


def install(dataset: BeirDataset, out: Path, advance: Advance = lambda count: None) -> Path:
    """The dataset's folder below ``out``; downloaded and unpacked, unless it exists. The zip is removed then.

    Raises:
        UnavailableError: BEIR does not distribute it, or says no md5; no connection, or bytes with another md5.
        UserError: the zip does not hold the dataset's folder, or ``out`` cannot be written.
    """
    target = out / dataset.name
    if target.is_dir():
        return target
    if dataset.url is None or dataset.md5 is None:
        why = f"BEIR says no md5 of {dataset.url}; unpack it yourself" if dataset.url else dataset.remarks[0]
        raise UnavailableError(f"{dataset.name}: {why}")
    archive = out / f"{dataset.name}.zip"
    with disk_errors(target), atomic.lock(target):
        if not target.is_dir():
            download_verified(dataset.url, archive, "md5", dataset.md5, advance)
            with atomic.folder(target) as staging:
                try:
                    with zipfile.ZipFile(archive) as file:
                        file.extractall(staging)
                    for path in list((staging / dataset.name).iterdir()):
                        path.rename(staging / path.name)
                except (zipfile.BadZipFile, FileNotFoundError) as error:
                    raise UserError(f"{archive} is not a zip file of a folder {dataset.name}/ ({error})") from error
                (staging / dataset.name).rmdir()
            archive.unlink()
    return target


def dataset_table() -> Table:
    """Every dataset with domain, size (as in BEIR's Table 1), licence, and whether it can be downloaded."""
    columns = [Column("dataset"), Column("domain"), Column("passages", "number"), Column("queries", "number")]
    rows = []
    for dataset in datasets().values():
        sizes = [f"{dataset.passages:,}", f"{dataset.queries:,}"]
        rows.append([dataset.name, dataset.domain, *sizes, dataset.licence, "yes" if dataset.md5 else "no"])
    return Table([*columns, Column("licence"), Column("download")], [rows])
