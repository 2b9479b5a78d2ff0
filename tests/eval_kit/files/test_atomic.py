"""Files and folders are replaced whole or not at all, wherever the process is killed."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from eval_kit.errors import UserError
from eval_kit.files import atomic

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
        moments.add((path.exists(), path.with_name(".folder.old").exists()))
        atomic.restore(path)
        assert content(path) == NEW if not killed else content(path) in (old, NEW)
        with atomic.lock(path), atomic.folder(path) as staging:
            (staging / "d").write_text("newer")
        assert content(path) == {"d": "newer"}
        assert names(path.parent) == {"folder", ".folder.lock"}
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


def test_reading_restores_nothing_where_nothing_is_missing(tmp_path: Path):
    """And writes nothing: a release may lie where nobody may write."""
    (tmp_path / "folder").mkdir()
    atomic.restore(tmp_path / "folder")
    atomic.restore(tmp_path / "absent")
    assert names(tmp_path) == {"folder"}


def test_a_file_is_old_or_new_wherever_its_writer_is_killed(tmp_path: Path):
    for step in range(1, 20):
        path = tmp_path / str(step) / "file[1]"
        path.parent.mkdir()
        path.write_text("old")
        killed = killed_before(step, path, "file")
        assert path.read_text() == ("new" if step > 3 else "old")
        atomic.write_text(path, "newer")
        assert path.read_text() == "newer" and names(path.parent) == {"file[1]"}
        if not killed:
            break
    assert step == 5, "killed before the temporary file is created, written and renamed, and after"


def test_what_somebody_else_named_so_is_left_alone(tmp_path: Path):
    """A pipe would be waited for."""
    foreign = [tmp_path / ".file.part", tmp_path / f".file.{'g' * 32}.part", tmp_path / f".file.{'a' * 32}.part"]
    for path in foreign[:2]:
        path.touch()
    os.mkfifo(foreign[2])
    atomic.clear_abandoned(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(foreign)


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path):
    path = tmp_path / "file"
    with atomic.whole(path) as first:
        first.write_text("first")
        with atomic.whole(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and names(tmp_path) == {"file"}


def test_a_file_has_the_permissions_of_any_other(tmp_path: Path):
    atomic.write_text(tmp_path / "ours", "text")
    (tmp_path / "other").write_text("text")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "other")]
    assert modes[0] == modes[1]


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


def test_names_as_long_as_a_file_system_takes_and_text_that_utf8_cannot_hold(tmp_path: Path):
    for name in ("a" * 255, "😀" * 63):
        atomic.write_text(tmp_path / name, "\udcff")
        assert (tmp_path / name).read_text() == r"\udcff"
