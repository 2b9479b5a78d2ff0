"""A release as one archive, unpacked by the system's own tools."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from drafts import small_draft

from builder import release as releases
from builder.pack import pack
from eval_kit.errors import UserError
from eval_kit.release import open_release

type Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    releases.write(small_draft(version="1.2.3"), tmp_path / "ms-marco-shift")
    return tmp_path / "ms-marco-shift"


def test_unpacks_to_the_release(folder: Path, tmp_path: Path, command: Run) -> None:
    (out := tmp_path / "out").mkdir()
    done = command("builder", "pack", folder, "--out", out)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "ms-marco-shift-mini-1.2.3.tar.gz",
        "ms-marco-shift-mini-1.2.3.tar.gz.sha256",
    ]
    subprocess.run(["sha256sum", "--check", "--strict", *out.glob("*.sha256")], cwd=out, check=True)
    subprocess.run(["tar", "-xzf", *out.glob("*.gz")], cwd=out, check=True)
    found = {path.relative_to(out): path.read_bytes() for path in (out / folder.name).rglob("*") if path.is_file()}
    expected = {path.relative_to(tmp_path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == expected
    assert open_release(out / folder.name).version == "1.2.3"


def test_the_same_release_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    one = pack(folder, tmp_path / "a")
    copy = tmp_path / "elsewhere"
    for path in sorted(folder.rglob("*"), reverse=True):  # other times, rights, and order of creation
        if path.is_file():
            (copy / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target := copy / path.relative_to(folder))
            target.chmod(0o600)
            os.utime(target, (1, 1))
    other = pack(copy, tmp_path / "b")
    assert one.path.read_bytes() == other.path.read_bytes() and one.sha256 == other.sha256
    with tarfile.open(one.path) as archive:
        names = archive.getnames()
        assert names == sorted(names)
        assert {(entry.mtime, entry.uid, entry.uname, entry.mode) for entry in archive} == {(0, 0, "", 0o644)}


def test_what_is_not_packed(folder: Path, tmp_path: Path, command: Run) -> None:
    (tmp_path / "nowhere").write_text("a file")
    done = command("builder", "pack", folder, "--out", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "") and "cannot be written" in done.stderr
    (stranger := folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt: is not part of the release"):
        pack(folder, tmp_path)
    stranger.unlink()
    path = folder / "data/qrels/dev-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="not a readable parquet file"):
        pack(folder, tmp_path)
    assert [one.name for one in tmp_path.glob("*.tar.gz*")] == [] and not list(tmp_path.glob(".ms*.gz*"))
