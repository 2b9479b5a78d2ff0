"""Folders and zip files from strangers: nothing in them may lead outside, or grow beyond its bounds.

A zip is judged by its directory before anything is written, and its bytes are counted while they are: a directory
can lie. Names are never mended: one that would leave the folder refuses the whole archive.
"""

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

import zstandard

from eval_kit.errors import UserError

SHOWN_FAULTS = 5


@dataclass(frozen=True)
class Limits:
    """How large a submission may be.

    Attributes:
        entries: files and folders.
        bytes: of all files together, unpacked.
        ratio: unpacked bytes for each packed byte, of an archive or a compressed file; text of runs packs 5 to 10
            times, zeros a thousand times.
        ratio_from: unpacked bytes up to which no ratio is suspicious.
    """

    entries: int = 1_000
    bytes: int = 64 << 30
    ratio: float = 100.0
    ratio_from: int = 10 << 20


LIMITS = Limits()


class ArchiveError(UserError):
    """A folder or an archive that is not safe to use, or is damaged; ``faults`` lists all that is wrong."""

    def __init__(self, path: Path, faults: list[str]) -> None:
        more = f"; and {len(faults) - SHOWN_FAULTS:,} more" if len(faults) > SHOWN_FAULTS else ""
        super().__init__(f"{path}: {'; '.join(faults[:SHOWN_FAULTS])}{more}")
        self.faults = faults


@contextmanager
def unpacked(path: Path, limits: Limits = LIMITS) -> Iterator[Path]:
    """A folder with what is in ``path``: itself where it is one, else a temporary one with the zip's files.

    Raises:
        ArchiveError: not safe, too large, or damaged; nothing is left behind then.
        UserError: neither a folder nor a zip file.
    """
    if path.is_dir():
        if faults := folder_faults(path, limits):
            raise ArchiveError(path, faults)
        yield path
        return
    if not path.is_file() or not zipfile.is_zipfile(path):
        what = "expected a folder or a zip file" if path.exists() else "there is no such folder or file"
        raise UserError(f"{path}: {what}")
    with TemporaryDirectory(prefix="eval_kit-") as folder:
        _extract(path, Path(folder), limits)
        yield Path(folder)


def folder_faults(folder: Path, limits: Limits = LIMITS) -> list[str]:
    """What makes a folder unsafe: links that lead out of it, what is neither file nor folder, its size."""
    faults = []
    root = folder.resolve()
    entries = total = 0
    for where, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(where, name)
            shown = printable(str(path.relative_to(folder)))
            entries += 1
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                faults.append(f"{shown}: is a link that leaves the folder")
                continue
            if not path.exists():
                faults.append(f"{shown}: is a link to nothing")
            elif path.is_file():
                total += path.stat().st_size
            elif not path.is_dir():
                faults.append(f"{shown}: is neither a file nor a folder")
        if entries > limits.entries:
            return [*faults, f"holds more than {limits.entries:,} files and folders"]
    if total > limits.bytes:
        faults.append(f"holds {total:,} bytes, more than {limits.bytes:,}")
    return faults


def leaves(name: str) -> bool:
    """Whether a relative path, with ``/`` between its parts, is absolute or leads outside, on any system."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name[1:2] == ":"


def grows_too_much(path: Path, limits: Limits = LIMITS) -> str:
    """What is wrong with how far a gzip or zstd file unpacks, or nothing; damage is for its reader to report."""
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        stream: IO[bytes]
        if magic[:2] == b"\x1f\x8b":
            stream = GzipFile(fileobj=file)  # type: ignore[assignment]
        elif magic == b"\x28\xb5\x2f\xfd":
            stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        else:
            return ""
        try:
            _count(stream, path.stat().st_size, 0, limits, lambda block: None)
        except _TooLargeError as error:
            return f"unpacks to {error}"
        except (OSError, EOFError, zlib.error, zstandard.ZstdError):
            return ""
    return ""


def printable(text: str) -> str:
    """The text with control and other invisible characters written out, so that it can go to a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _TooLargeError(Exception):
    """How much is too much, as the end of a sentence."""


def _extract(path: Path, folder: Path, limits: Limits) -> None:
    packed = path.stat().st_size
    if _directory_bytes(path) > limits.entries * 1024:
        raise ArchiveError(path, [f"its directory is larger than that of {limits.entries:,} files"])
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if faults := _entry_faults(entries, packed, limits):
                raise ArchiveError(path, faults)
            written = 0
            for entry in entries:
                target = folder / entry.filename
                if entry.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as stream, target.open("xb") as file:
                    written = _count(stream, packed, written, limits, file.write)
    except _TooLargeError as error:
        raise ArchiveError(path, [f"unpacks to {error}"]) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
        raise ArchiveError(path, [f"is damaged, or packed in a way that is not supported: {error}"]) from error
    except FileExistsError as error:
        raise ArchiveError(path, ["holds a file where it has a folder too"]) from error
    except OSError as error:
        raise ArchiveError(path, [f"cannot be unpacked: {error.strerror}"]) from error


def _entry_faults(entries: list[zipfile.ZipInfo], packed: int, limits: Limits) -> list[str]:
    """All that is wrong with an archive by its directory alone."""
    faults = []
    seen: set[PurePosixPath] = set()
    for entry in entries[: limits.entries]:
        name, shown = entry.orig_filename, printable(entry.orig_filename)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        path = PurePosixPath(name)
        if leaves(name) or not path.parts:
            faults.append(f"{shown}: leaves the folder")
        elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            faults.append(f"{shown}: is {'a link' if kind == stat.S_IFLNK else 'neither a file nor a folder'}")
        elif entry.flag_bits & 1:
            faults.append(f"{shown}: is encrypted")
        elif path in seen:
            faults.append(f"{shown}: comes twice")
        seen.add(path)
    if len(entries) > limits.entries:
        faults.append(f"holds {len(entries):,} files and folders, more than {limits.entries:,}")
    try:
        _check_size(sum(entry.file_size for entry in entries), packed, limits)
    except _TooLargeError as error:
        faults.append(f"unpacks to {error}")
    return faults


def _check_size(unpacked_bytes: int, packed: int, limits: Limits) -> None:
    if unpacked_bytes > limits.bytes:
        raise _TooLargeError(f"more than {limits.bytes:,} bytes")
    if unpacked_bytes > max(limits.ratio_from, limits.ratio * packed):
        raise _TooLargeError(f"more than {limits.ratio:g} times its size, as no run does")


def _count(stream: IO[bytes], packed: int, already: int, limits: Limits, sink: Callable[[bytes], object]) -> int:
    """Pass a stream on, block by block, as long as it stays within the limits; all bytes so far."""
    while block := stream.read(1 << 20):
        already += len(block)
        _check_size(already, packed, limits)
        sink(block)
    return already


def _directory_bytes(path: Path) -> int:
    """The size of a zip's directory as its end record tells it, before a library reads all of it into memory."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 16) - 100))
        tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        return 0
    (size,) = struct.unpack_from("<L", tail, end + 12)
    large = tail.rfind(b"PK\x06\x06", 0, end)
    if size == 0xFFFFFFFF and large >= 0 and len(tail) >= large + 56:
        (size,) = struct.unpack_from("<Q", tail, large + 40)
    return int(size)
