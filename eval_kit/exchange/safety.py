"""Folders from strangers: nothing in them may lead outside, or grow beyond its bounds."""

import os
import zlib
from gzip import GzipFile
from pathlib import Path, PurePosixPath
from typing import IO

import zstandard

from eval_kit.errors import printable

MOST_ENTRIES = 1_000
MOST_BYTES = 64 << 30
MOST_GROWTH = 100
"""Unpacked bytes for each packed byte: text of runs packs 5 to 10 times, zeros a thousand times."""
SMALL_BYTES = 10 << 20
"""Up to this size unpacked, no growth is suspicious."""


def folder_faults(folder: Path) -> list[str]:
    """What makes a folder unsafe: links that lead out of it, what is neither file nor folder, its size."""
    faults = []
    root = folder.resolve()
    entries = total = 0
    for parent, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(parent, name)
            shown = printable(str(path.relative_to(folder)))
            entries += 1
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                faults.append(f"{shown}: is a link that leaves the folder")
            elif not path.exists():
                faults.append(f"{shown}: is a link to nothing")
            elif path.is_file():
                total += path.stat().st_size
            elif not path.is_dir():
                faults.append(f"{shown}: is neither a file nor a folder")
        if entries > MOST_ENTRIES:
            return [*faults, f"holds more than {MOST_ENTRIES:,} files and folders"]
    if total > MOST_BYTES:
        faults.append(f"holds {total:,} bytes, more than {MOST_BYTES:,}")
    return faults


def leaves(name: str) -> bool:
    """Whether a relative path, with ``/`` between its parts, is absolute or leads outside, on any system."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name[1:2] == ":"


def grows_too_much(path: Path) -> bool:
    """Whether a gzip or zstd file unpacks further than any run does; damage is for its reader to report."""
    most = max(SMALL_BYTES, MOST_GROWTH * path.stat().st_size)
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        stream: IO[bytes]
        if magic[:2] == b"\x1f\x8b":
            stream = GzipFile(fileobj=file)  # type: ignore[assignment]
        elif magic == b"\x28\xb5\x2f\xfd":
            stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        else:
            return False
        size = 0
        try:
            while size <= most and (block := stream.read(1 << 20)):
                size += len(block)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError):
            return False
    return size > most
