"""Folders from strangers: nothing in them may lead outside or exceed its size limit."""

import os
from pathlib import Path, PurePosixPath

from eval_kit.errors import printable
from eval_kit.files.opening import is_file

MOST_ENTRIES = 1_000
MOST_BYTES = 64 << 30


def folder_faults(folder: Path) -> list[str]:
    """What makes a folder unsafe: links that lead out of it, entries that are neither file nor folder, its size."""
    faults = []
    entries = total = 0
    for parent, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(parent, name)
            path_text = printable(str(path.relative_to(folder)))
            entries += 1
            if path.is_symlink() and leads_outside(path, folder):
                faults.append(f"{path_text}: is a link that leaves the folder")
            elif path.is_symlink() and not os.access(path, os.F_OK):
                faults.append(f"{path_text}: is a link to nothing")
            elif is_file(path):
                total += path.stat().st_size
            elif not path.is_dir():
                faults.append(f"{path_text}: is neither a file nor a folder")
        if entries > MOST_ENTRIES:
            return [*faults, f"holds more than {MOST_ENTRIES:,} files and folders"]
    if total > MOST_BYTES:
        faults.append(f"holds {total:,} bytes, more than {MOST_BYTES:,}")
    return faults


def leads_outside(path: Path, folder: Path) -> bool:
    """Whether links on the way to ``path`` lead out of ``folder``."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def leaves(name: str) -> bool:
    """Whether a relative path, with ``/`` between its parts, is absolute or leads outside, on any system."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name[1:2] == ":"
