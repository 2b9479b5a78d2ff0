"""Files and folders are replaced whole or not at all, wherever the process is killed."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from eval_kit.errors import UserError
from eval_kit.files import atomic
from tests.eval_kit.submissions import plain_run

KILLED = """
import os, signal, sys
from pathlib import Path
from eval_kit.files import atomic

path, step = Path(sys.argv[1]), int(sys.argv[2])
left = [step]

def changes(event, arguments):
    if event == "open":
        return str(path.parent) in str(arguments[0]) and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
    return event in {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}

def hook(event, arguments):
    if changes(event, arguments):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
if sys.argv[3] == "file":
    atomic.write_text(path, "new")
else:
    with atomic.folder(path) as staging:
        (staging / "inner").mkdir()
        (staging / "inner" / "a").write_text("new")
        (staging / "b").write_text("new")
os._exit(0)
"""


def killed_before(step: int, path: Path, kind: str) -> bool:
    """Whether SIGKILL came before the given step at which something is created, renamed or removed."""
    status = subprocess.run([sys.executable, "-c", KILLED, path, str(step), kind]).returncode
    assert status in (0, -9)
    return status == -9


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


NEW = {"b": "new", "inner/a": "new"}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_is_old_or_new_wherever_its_writer_is_killed(tmp_path: Path, replaced: bool):
    old = {"c": "old"} if replaced else {}
    moments = set()
    for step in range(1, 100):
        path = tmp_path / str(step) / "folder"
        path.parent.mkdir()
        if replaced:
            path.mkdir()
            (path / "c").write_text("old")
        killed = killed_before(step, path, "folder")
        moments.add((path.exists(), any(path.parent.glob(".folder.*.part/old/folder"))))
        atomic.restore(path)
        assert content(path) == NEW if not killed else content(path) in (old, NEW)
        with atomic.lock(path), atomic.folder(path) as staging:
            (staging / "d").write_text("newer")
        assert content(path) == {"d": "newer"}
        assert names(path.parent) - {".folder.lock"} == {"folder"}
        if not killed:
            break
    assert step > 5
    expected = {(True, False), (False, True), (True, True)} if replaced else {(False, False), (True, False)}
    assert moments == expected, "killed before, between and after the renamings"


def test_a_block_that_fails_leaves_the_old_folder_and_nothing_beside_it(tmp_path: Path):
    path = tmp_path / "folder"
    for existing in (False, True):
        before = content(tmp_path)
        with pytest.raises(KeyboardInterrupt), atomic.folder(path) as staging:
            (staging / "half").write_text("half")
            raise KeyboardInterrupt
        assert content(tmp_path) == before
        assert path.exists() is existing and names(tmp_path) <= {"folder"}
        path.mkdir(exist_ok=True)
        (path / "a").write_text("old")
    atomic.restore(path)  # writes nothing where nothing is missing: a release may lie where nobody may write
    atomic.restore(tmp_path / "absent")
    assert names(tmp_path) == {"folder"}


def test_a_file_is_old_or_new_wherever_its_writer_is_killed(tmp_path: Path):
    moments = []
    for step in range(1, 40):
        path = tmp_path / str(step) / "file[1]"
        path.parent.mkdir()
        path.write_text("old")
        killed = killed_before(step, path, "file")
        moments.append(path.read_text())
        atomic.write_text(path, "newer")
        assert path.read_text() == "newer" and names(path.parent) == {"file[1]"}
        if not killed:
            break
    assert sorted(moments, reverse=True) == moments and set(moments) == {"old", "new"}
    assert 5 < step < 39, "killed before and after the renaming"


def test_what_somebody_else_named_so_is_left_alone(tmp_path: Path):
    """Whatever stands beside an output: only folders with our mark are ours. A pipe as the mark would be waited for."""
    ours = f"{'a' * 32}.part"
    for name in (".old", ".new", "", f".{ours}", ".part", f".{'g' * 32}.part"):
        (tmp_path / f".folder{name}").mkdir()
        (tmp_path / f".folder{name}" / "precious").write_text("precious")
    (tmp_path / f".folder.{ours}" / "old" / "folder").mkdir(parents=True)
    (tmp_path / f".file.{ours}").write_text("precious")
    (tmp_path / f".pipe.{ours}").mkdir()
    os.mkfifo(tmp_path / f".pipe.{ours}" / atomic.MARK)
    before = sorted(tmp_path.rglob("*"))
    for name in ("folder", "file", "pipe", "nothing"):
        atomic.restore(tmp_path / name)
        atomic.clear_abandoned(tmp_path, name)
    with atomic.lock(tmp_path / "folder"), atomic.folder(tmp_path / "folder"):
        pass
    atomic.write_text(tmp_path / "file", "text")
    left = {path for path in tmp_path.rglob("*") if path.name not in ("file", ".folder.lock")}
    assert left - {tmp_path / "folder"} == set(before)
    (tmp_path / "folder").rmdir()
    atomic.restore(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


WITHOUT_UNIX = """
import os, signal, sys
sys.modules["fcntl"] = None
del signal.SIGHUP
really = os.open
def opened(path, *more, **others):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return really(path, *more, **others)
def forbidden(*_, **__):
    raise OSError("a privilege is missing")
os.open = opened
os.symlink = forbidden
from eval_kit.files import atomic
atomic.WINDOWS = True
import eval_kit
from eval_kit.cli import main
run, release, out = sys.argv[1:]
values = eval_kit.score({"named": run}, release).to_polars()["value"]
with atomic.folder(atomic.Path(out + ".folder")) as staging:
    (staging / "a").write_text("a")
sys.argv = ["eval_kit", "score", run, "--release", release, "--json", out]
main()
"""


def test_without_what_only_unix_has(mini_release, tmp_path: Path):
    """No fcntl, no SIGHUP, folders that cannot be opened, links that nobody may make, and lines that end as there."""
    run, out = tmp_path / "run.trec", tmp_path / "scores.json"
    run.write_bytes(plain_run(mini_release, "dl19").replace("\n", "\r\n").encode())
    environment = os.environ | {"PYTHONPATH": str(Path(atomic.__file__).parents[2])}
    line = [sys.executable, "-c", WITHOUT_UNIX, run, mini_release.folder, out]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [source] = json.loads(out.read_text())["provenance"]["runs"]
    assert source["lines"] == len(mini_release.test_sets["dl19"].queries)
    assert names(tmp_path) == {"run.trec", "scores.json", "scores.json.folder"}


def test_a_file_that_is_being_written_is_left_alone_and_is_as_any_other(tmp_path: Path):
    path = tmp_path / "file"
    with atomic.whole(path) as first:
        first.write_text("first")
        with atomic.whole(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and names(tmp_path) == {"file"}
    (tmp_path / "other").write_text("text")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)
    for name in ("a" * 255, "😀" * 63):  # as long as a file system takes, with text that UTF-8 cannot hold
        atomic.write_text(tmp_path / name, "\udcff")
        assert (tmp_path / name).read_text() == r"\udcff"


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "loop").symlink_to("loop")
    paths = (tmp_path / "absent" / "file", tmp_path / "file" / "file", tmp_path, tmp_path / "loop", Path("/dev/full"))
    for path in paths:
        with pytest.raises(UserError, match=f"^{path}: cannot be written: "):
            atomic.write_text(path, "text")


def test_a_link_is_followed_and_a_device_or_pipe_written_to(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    target, link, pipe = tmp_path / "inner" / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    for text in ("first", "second"):  # the target is made, then replaced
        atomic.write_text(link, text)
        assert link.is_symlink() and target.read_text() == text
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    atomic.write_text(pipe, "through")
    assert reader.communicate()[0] == "through" and pipe.is_fifo()
    atomic.write_text(Path(os.devnull), "away")
    assert Path(os.devnull).is_char_device()
    assert names(tmp_path) == {"inner", "link", "pipe"} and names(tmp_path / "inner") == {"target"}
