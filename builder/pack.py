"""A release as one file to hand on: the same bytes for the same release, wherever and whenever it is packed."""

import gzip
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.release import files
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.digests import file_sha256
from eval_kit.release import NAME, title, verified_manifest


@dataclass(frozen=True)
class Packed:
    """An archive and its sha256, which also stands beside it as ``sha256sum`` writes it."""

    path: Path
    sha256: str


def pack(folder: Path, out: Path) -> Packed:
    """Write the release in ``folder`` to ``out/ms-marco-shift-<version>.tar.gz`` (``…-mini-…`` for a mini release).

    One that was rebuilt from another collection has that collection's name (``nfcorpus-shift-rebuilt-…``).

    In it everything is below ``ms-marco-shift/``, sorted by name, of no time and no owner. Equal bytes
    need the same zlib too; the sha256 of the unpacked files stands in the manifest.

    Raises:
        UserError: the folder is no undamaged release or holds something else, or the archive cannot be written;
            nothing is left behind then.
    """
    manifest = verified_manifest(folder)
    names = files(folder, manifest)
    kind = "" if manifest["kind"] == "published" else f"-{manifest['kind']}"
    target = out / f"{title(manifest)}{kind}-{manifest['version']}.tar.gz"
    try:
        out.mkdir(parents=True, exist_ok=True)
        with atomic.whole(target) as part:
            _write(folder, names, part)
            sha256 = file_sha256(part)
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror or error}") from error
    atomic.write_text(target.with_name(f"{target.name}.sha256"), f"{sha256}  {target.name}\n")
    return Packed(target, sha256)


def _write(folder: Path, names: Sequence[str], path: Path) -> None:
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in names:
            entry = tarfile.TarInfo(f"{NAME}/{name}")
            entry.size = (folder / name).stat().st_size
            with (folder / name).open("rb") as content:
                archive.addfile(entry, content)
