"""A release as one archive: the same bytes for the same release, wherever and whenever it is packed."""

import gzip
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.card import check_card
from builder.release import files
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.digests import file_sha256
from eval_kit.release import NAME, title, verified_manifest


@dataclass(frozen=True)
class Packed:
    """An archive and its sha256, which is also written beside it in the format of ``sha256sum``."""

    path: Path
    sha256: str


def pack(folder: Path, out: Path) -> Packed:
    """Write the release in ``folder`` to ``out/ms-marco-shift-<version>.tar.gz`` (``…-mini-…`` for a mini release).

    A release rebuilt from another collection is named after that collection (``nfcorpus-shift-rebuilt-…``).

    In the archive everything is below ``ms-marco-shift/``, sorted by name, without times or owners. Equal bytes also
    require the same zlib; the sha256 of the unpacked files is in the manifest.

    Raises:
        UserError: the folder is not an undamaged release or holds something else, or the archive cannot be written;
            then nothing is left behind.
    """
    manifest = verified_manifest(folder)
    names = files(folder, manifest)
    check_card(folder, manifest)
    if out.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{out}: is in the release, which the archive would become a part of; name another --out")
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
