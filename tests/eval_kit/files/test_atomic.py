"""Files and folders are replaced whole or not at all, wherever the process is killed."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

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


def test_a_folder_is_old_or_new_wherever_its_writer_is_killed(tmp_path: Path):
    old, new = {"c": "old"}, {"b": "new", "inner/a": "new"}
    states = []
    for step in range(1, 40):
        path = tmp_path / str(step) / "folder"
        path.mkdir(parents=True)
        (path / "c").write_text("old")
        killed = killed_before(step, path, "folder")
        states.append(content(path if path.exists() else path.with_name(".folder.replaced")))
        with pytest.raises(KeyboardInterrupt), atomic.folder(path):  # which brings back what a kill set aside
            raise KeyboardInterrupt
        assert content(path) == states[-1] and names(path.parent) == {"folder"}
        with atomic.folder(path) as staging:
            (staging / "d").write_text("newer")
        assert content(path) == {"d": "newer"} and names(path.parent) == {"folder"}
        if not killed:
            break
    assert 5 < step < 39 and states[0] == old and states[-1] == new and all(state in (old, new) for state in states)


def test_a_file_is_old_or_new_wherever_its_writer_is_killed(tmp_path: Path):
    states = []
    for step in range(1, 40):
        path = tmp_path / str(step) / "file[1]"
        path.parent.mkdir()
        path.write_text("old")
        killed = killed_before(step, path, "file")
        states.append(path.read_text())
        atomic.write_text(path, "newer")
        assert path.read_text() == "newer" and names(path.parent) == {"file[1]"}
        if not killed:
            break
    assert sorted(states, reverse=True) == states and set(states) == {"old", "new"}
    assert 3 < step < 39, "killed before and after the renaming"


def test_many_writers_of_one_file_leave_it_whole(tmp_path: Path):
    path = tmp_path / "file"
    texts = [str(number) * 100_000 for number in range(8)]
    writers = [Thread(target=atomic.write_text, args=(path, text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_text() in texts and names(tmp_path) == {"file"}


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    paths = (tmp_path / "absent" / "file", tmp_path / "file" / "file", tmp_path, tmp_path / "pipe", Path(os.devnull))
    for path in paths:
        with pytest.raises(UserError, match=f"^Could not write {path}"):
            atomic.write_text(path, "text")
    assert names(tmp_path) == {"file", "pipe"} and Path(os.devnull).is_char_device()


def test_a_link_is_followed(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    target, link = tmp_path / "inner" / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("first", "second"):  # the target is made, then replaced
        atomic.write_text(link, text)
        assert link.is_symlink() and target.read_text() == text
    assert names(tmp_path) == {"inner", "link"} and names(tmp_path / "inner") == {"target"}


def test_inside_a_folder_of_somebody_else_no_link_is_followed(tmp_path: Path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").write_text("precious")
    (tmp_path / "theirs/README.md").symlink_to(tmp_path / "mine/precious")
    (tmp_path / "theirs/reports").symlink_to(tmp_path / "mine")
    atomic.write_inside(tmp_path / "theirs", "README.md", "card")
    assert (tmp_path / "theirs/README.md").read_text() == "card"
    with pytest.raises(UserError, match="leads out of"):
        atomic.write_inside(tmp_path / "theirs", "reports/precious", "audit")
    assert (tmp_path / "mine/precious").read_text() == "precious" and names(tmp_path / "mine") == {"precious"}


def test_what_this_process_has_open_is_written_straight(tmp_path: Path):
    reading, writing = os.pipe()
    atomic.write_text(Path(f"/dev/fd/{writing}"), "text")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "text"
    with pytest.raises(UserError, match="/proc/self/x"):
        atomic.write_text(Path("/proc/self/x"), "text")


def test_a_lock_that_is_held_for_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(atomic, "_A_FILE", 0.1)
    with atomic.file_lock(tmp_path / ".file.part.lock"), pytest.raises(UserError, match=r"\.file\.part\.lock"):
        atomic.write_text(tmp_path / "file", "text")


def test_a_file_keeps_its_permissions_and_no_read_only_one_is_replaced(tmp_path: Path):
    file, other = tmp_path / "figures.json", tmp_path / "other"
    for mode in (0o600, 0o664):
        file.write_text("old")
        file.chmod(mode)
        atomic.write_text(file, "new")
        assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", mode)
    other.write_text("theirs")
    with atomic.whole(file) as part:
        atomic.link_or_copy(other, part)
    assert other.stat().st_mode & 0o777 == 0o644, "another name of it is left alone"
    file.chmod(0o444)
    with pytest.raises(UserError, match="read-only"):
        atomic.write_text(file, "newer")
    assert file.read_text() == "theirs"


def test_no_lock_is_made_through_a_link(tmp_path: Path):
    (folder := tmp_path / "release").mkdir()
    for name in (".README.md.part.lock", ".x.lock"):
        (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="Could not write"):
        atomic.write_inside(folder, "README.md", "card")
    with pytest.raises(OSError, match="link"):
        atomic.lock(folder / "x")
    assert not (tmp_path / "elsewhere").exists()
