"""A release as one archive, by ``make pack``, unpacked by the system's own tools."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from drafts import small_draft

from builder import release as releases
from eval_kit.release import open_release

ROOT = Path(__file__).parents[2]


def pack(folder: Path, out: Path) -> Path:
    line = ["make", "--silent", "-C", str(ROOT), "pack", f"RELEASE={folder}", f"DIST={out}"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    subprocess.run(["sha256sum", "--check", "--strict", *out.glob("*.sha256")], cwd=out, check=True)
    [archive] = out.glob("*.gz")
    assert archive.name in done.stdout
    return archive


def test_an_archive_unpacks_to_the_release_and_has_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "ms-marco-shift"
    releases.write(small_draft(version="1.2.3"), folder)
    one = pack(folder, tmp_path / "a")
    assert one.name == "ms-marco-shift-1.2.3.tar.gz"
    subprocess.run(["tar", "-xzf", one], cwd=tmp_path / "a", check=True)
    found = tmp_path / "a" / folder.name
    assert open_release(found).version == "1.2.3"
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert files and all((found / file).read_bytes() == (folder / file).read_bytes() for file in files)
    assert sum(path.is_file() for path in found.rglob("*")) == len(files)

    copy = tmp_path / "elsewhere" / folder.name  # other times, rights, and order of creation
    for file in sorted(files, reverse=True):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file, target := copy / file)
        target.chmod(0o600)
        os.utime(target, (1, 1))
    other = pack(copy, tmp_path / "b")
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as archive:
        assert archive.getnames() == sorted(archive.getnames())
        assert {(entry.mtime, entry.uid, entry.uname) for entry in archive} == {(0, 0, "")}
        assert {entry.mode for entry in archive if entry.isfile()} == {0o644}


def test_a_damaged_release_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    line = ["make", "-C", str(ROOT), "pack", f"RELEASE={tmp_path / 'release'}", f"DIST={tmp_path / 'out'}"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode and not list(tmp_path.rglob("*.gz"))
