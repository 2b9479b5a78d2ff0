"""A release as one archive, by ``make pack``, unpacked by the system's own tools."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from drafts import content, written

from eval_kit.release import open_release

ROOT = Path(__file__).parents[2]


def make_pack(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    line = ["make", "--silent", "-C", str(ROOT), "pack", f"RELEASE={folder}", f"DIST={out}"]
    return subprocess.run(line, capture_output=True, text=True)


def pack(folder: Path, out: Path) -> Path:
    done = make_pack(folder, out)
    subprocess.run(["sha256sum", "--check", "--strict", *out.glob("*.sha256")], cwd=out, check=True)
    [archive] = out.glob("*.gz")
    assert done.returncode == 0 and archive.name in done.stdout
    return archive


def test_an_archive_unpacks_to_the_release_and_has_the_same_bytes(tmp_path: Path) -> None:
    folder = written(tmp_path / "ms-marco-shift", version="1.2.3").folder
    first = pack(folder, tmp_path / "a")
    assert first.name == "ms-marco-shift-1.2.3.tar.gz"
    subprocess.run(["tar", "-xzf", first], cwd=tmp_path / "a", check=True)
    assert content(tmp_path / "a" / folder.name) == content(folder)
    assert open_release(tmp_path / "a" / folder.name).version == "1.2.3"

    copy = tmp_path / "elsewhere" / folder.name  # other times, rights, and order of creation
    for file in sorted(content(folder), reverse=True):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file, target := copy / file)
        target.chmod(0o600)
        os.utime(target, (1, 1))
    assert first.read_bytes() == pack(copy, tmp_path / "b").read_bytes()
    with tarfile.open(first) as archive:
        assert archive.getnames() == sorted(archive.getnames())
        assert {(entry.mtime, entry.uid, entry.uname) for entry in archive} == {(0, 0, "")}
        assert {entry.mode for entry in archive if entry.isfile()} == {0o644}

    (copy / "manifest.json").unlink()
    assert make_pack(copy, tmp_path / "c").returncode, "no release"
    assert not list((tmp_path / "c").rglob("*.gz"))
