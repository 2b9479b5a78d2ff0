"""Submissions: every fault by name, several at once, and folders that mean harm."""

import gzip
import json
import os
from pathlib import Path

import pytest
import zstandard

from eval_kit.errors import UserError
from eval_kit.exchange import safety
from eval_kit.exchange.submission import open_submission, validate
from eval_kit.release import Release
from eval_kit.runs.contamination import declare
from eval_kit.shifts import SHIFTS
from tests.eval_kit.submissions import plain_run, submit


def shift_run(release: Release, shift: str) -> str:
    return plain_run(release, *(name for name in release.test_sets if name.startswith(f"{shift}.")))


@pytest.fixture
def whole(mini_release: Release, tmp_path: Path) -> Path:
    """A submission without a fault: a grid on wh, and a plain run of TREC DL 2019."""
    folder = tmp_path / "submission"
    (folder / "runs").mkdir(parents=True)
    files = [f"runs/s.wh.{part}.trec" for part in ("wha", "how", "who")]
    for file in files:
        (folder / file).write_text(shift_run(mini_release, "wh"))
    (folder / "plain.trec.gz").write_bytes(gzip.compress(plain_run(mini_release, "dl19").encode()))
    return submit(mini_release, folder, [*files, "plain.trec.gz"])


def changed(folder: Path, **changes) -> None:
    path = folder / "submission.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_good_submission_has_no_fault(whole, mini_release):
    declare(whole / "runs" / "s.wh.wha.trec", ["beside each run, as the grid writes it"])
    target = whole / "runs/s.wh.who.trec"
    target.unlink()
    target.symlink_to(whole / "runs/s.wh.how.trec")  # a link inside the folder is a file
    assert validate(whole, mini_release) == []
    submission = open_submission(whole, mini_release)
    assert submission.document.system == "s"
    cells = {run.name: cell and cell.held_out for run, cell in submission.runs.items()}
    assert cells == {"s.wh.wha.trec": "wha", "s.wh.how.trec": "how", "s.wh.who.trec": "who", "plain.trec.gz": None}
    assert all(run.is_file() for run in submission.runs)
    for nothing in ([], ["none"]):  # either says that the system had no training
        changed(whole, training_data=nothing)
        assert validate(whole, mini_release) == []
        assert open_submission(whole, mini_release).document.training_data == nothing


@pytest.mark.parametrize(("name", "sentence"), [("s.zip", "expected a folder with"), ("gone", "there is no such")])
def test_a_submission_is_a_folder(mini_release, tmp_path, name, sentence):
    (tmp_path / "s.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    for read in (validate, open_submission):
        with pytest.raises(UserError, match=f"{name}: {sentence}"):
            read(tmp_path / name, mini_release)


def test_several_faults_are_reported_at_once(whole, mini_release):
    made = json.loads((whole / "submission.json").read_text())
    wh, length = shift_run(mini_release, "wh"), shift_run(mini_release, "length")
    (whole / "runs/s.wh.wha.trec").write_text(wh.replace("1.0", "nan", 1))
    (whole / "runs/s.wh.how.trec").write_text(length)
    (whole / "runs/s.length.short.trec").write_text(length)
    (whole / "README.md").write_text("x")
    (whole / "named.topic.c0.trec").write_text(wh)
    runs = [
        *made["runs"][:2],  # who is no longer listed
        {"file": "gone.trec"},
        {"file": "../other.trec"},
        {"file": "/etc/hostname"},
        {"file": "runs/s.length.short.trec", "shift": "length", "held_out": "short"},
        {"file": "runs/s.length.short.trec"},
        {"file": "named.topic.c0.trec", "shift": "wh", "held_out": "who"},
    ]
    changed(whole, runs=runs, team="", links=["ftp://x"], extra=1, release={"version": "9.9.9", "digest": "0" * 64})
    *faults, foreign = validate(whole, mini_release)
    assert faults == [
        "submission.json: $: Additional properties are not allowed ('extra' was unexpected)",
        "submission.json: $.links[0]: 'ftp://x' does not match '^https?://'",
        "submission.json: $.runs[3].file: '../other.trec' is absolute, leaves the folder or holds a backslash",
        "submission.json: $.runs[4].file: '/etc/hostname' is absolute, leaves the folder or holds a backslash",
        "submission.json: $.team: '' should be non-empty",
        "submission.json: $.runs[2]: there is no file gone.trec",
        "submission.json: $.runs[6]: runs/s.length.short.trec is listed twice",
        "submission.json: $.runs[7]: is listed as wh.who with seed 0, but its name named.topic.c0.trec says topic.c0 "
        "with seed 0",
        f"submission.json: $.release.version: the runs were made for 9.9.9, this release has {mini_release.version}",
        f"submission.json: $.release.digest: the runs were made for {'0' * 64}, this release has {mini_release.digest}",
        "the grid on length lacks a run: expected s.length.long.trec",
        "README.md: is not listed in submission.json",
        "plain.trec.gz: is not listed in submission.json",
        "runs/s.wh.who.trec: is not listed in submission.json",
        "runs/s.wh.wha.trec:1: the score 'nan' is not a finite number",
    ]
    sentence = "runs/s.wh.how.trec: is listed for the wh shift, but covers none of its test sets: length"
    assert foreign.startswith(sentence)
    with pytest.raises(UserError, match="submission"):
        open_submission(whole, mini_release)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "there is no submission.json"),
        (b"{\n", "submission.json:2: is not JSON"),
        (b"\xff", "submission.json:1: is not UTF-8"),
        (b'{"a": 1, "a": 2}', "submission.json: is not JSON: the key 'a' appears twice"),
        (b"\xef\xbb\xbf{}", "submission.json:1: holds a byte-order mark; save the file as plain UTF-8"),
        (gzip.compress(b"{}", mtime=0), "submission.json: is packed by gzip; unpack it"),
        (b"[" * 100_000, "submission.json: "),
        (b"[]", "submission.json: $: [] is not of type 'object'"),
        (b" " * (1 << 20) + b"{}", "submission.json: is larger than 1,048,576 bytes"),
    ],
)
def test_documents_that_cannot_be_used(whole, mini_release, text, sentence):
    path = whole / "submission.json"
    path.unlink() if text is None else path.write_bytes(text)
    [fault] = validate(whole, mini_release)
    assert fault.startswith(sentence)
    with pytest.raises(UserError, match="submission"):
        open_submission(whole, mini_release)


def test_an_empty_document_lacks_everything(whole, mini_release):
    (whole / "submission.json").write_text("{}")
    faults = validate(whole, mini_release)
    names = ("system", "team", "architecture", "training_data", "licence", "release", "runs")
    assert [fault for fault in faults if "is a required property" in fault] == [
        f"submission.json: $: '{name}' is a required property" for name in names
    ]
    with pytest.raises(UserError, match=r"; and 2 more$"):
        open_submission(whole, mini_release)


def test_grids(whole, mini_release):
    made = json.loads((whole / "submission.json").read_text())["runs"]
    (whole / "other.wh.who.trec").write_text(shift_run(mini_release, "wh"))
    other = {"file": "other.wh.who.trec"}
    seeded = [*made[:2], {"file": "runs/s.wh.who.trec", "shift": "wh", "held_out": "who", "seed": 2}, made[3]]
    strange = {"shift": "wh", "held_out": "c9"}
    cases = {
        "the grid on wh lacks a run: expected s.wh.how.trec": [made[0], made[2], made[3]],
        "is a second run of wh.who, seed 0": [*made, other],
        "the wh shift has no c9, which a run is listed for; it has wha, how, who": [*made, other | strange],
        "the release holds no sideways shift": [*made, other | strange | {"shift": "sideways"}],
        "says wh.who with seed 0": seeded,
        "expected s.wh.wha.seed2.trec": seeded,
        "expected s.wh.how.seed2.trec": seeded,
        "'held_out' is a dependency of 'shift'": [*made, other | {"shift": "wh"}],
    }
    for sentence, runs in cases.items():
        changed(whole, runs=runs)
        assert any(sentence in fault for fault in validate(whole, mini_release)), sentence


def test_restrain_and_resttest_cells_need_their_own_test_sets(mini_release, tmp_path):
    for shift, test_set in (("restrain", "dl19"), ("resttest", "dev")):
        folder = tmp_path / shift
        folder.mkdir()
        parts = SHIFTS[shift].parts(mini_release)
        if shift == "restrain":
            parts = [part for part in parts if part.endswith(parts[0].partition("_")[2])]
        files = [f"s.{shift}.{part}.trec" for part in parts]
        for file in files:
            (folder / file).write_text(plain_run(mini_release, test_set))
        submit(mini_release, folder, files)
        assert validate(folder, mini_release) == []
        (folder / files[0]).write_text(plain_run(mini_release, "topic.c0"))
        [fault] = validate(folder, mini_release)
        assert fault.startswith(f"{files[0]}: is listed for the {shift} shift, but covers none of its test sets: topic")
        (folder / files[0]).unlink()
        changed(folder, runs=[{"file": file} for file in files[1:]])
        assert validate(folder, mini_release) == [f"the grid on {shift} lacks a run: expected {files[0]}"]


def test_a_run_that_covers_only_part_of_its_shift(whole, mini_release):
    (whole / "runs/s.wh.wha.trec").write_text(plain_run(mini_release, "wh.wha", "wh.who"))
    assert validate(whole, mini_release) == [
        "runs/s.wh.wha.trec: does not cover wh.how, which the wh shift is evaluated on"
    ]


def test_links_and_pipes_in_a_folder(whole, mini_release, tmp_path, monkeypatch):
    outside = tmp_path / "secret.trec"
    outside.write_text(plain_run(mini_release, "dl19"))
    plain = whole / "plain.trec.gz"
    plain.unlink()
    plain.symlink_to(outside)
    (whole / "up").symlink_to(tmp_path)
    (whole / "nothing").symlink_to(whole / "not here")
    os.mkfifo(whole / "pipe")
    faults = validate(whole, mini_release)
    assert faults[:4] == [
        "nothing: is a link to nothing",
        "pipe: is neither a file nor a folder",
        "plain.trec.gz: is a link that leaves the folder",
        "up: is a link that leaves the folder",
    ]
    assert "submission.json: $.runs[3]: plain.trec.gz leaves the folder" in faults
    with pytest.raises(UserError, match="up: is a link"):
        open_submission(whole, mini_release)
    monkeypatch.setattr(safety, "MOST_BYTES", 100)
    assert any("bytes, more than 100" in fault for fault in validate(whole, mini_release))
    monkeypatch.setattr(safety, "MOST_ENTRIES", 3)
    assert "holds more than 3 files and folders" in validate(whole, mini_release)


def test_a_linked_folder_is_not_taken_for_the_submission(whole, mini_release, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "link").symlink_to(whole)
    assert validate(tmp_path / "empty", mini_release) == [
        "link: is a link that leaves the folder",
        "there is no submission.json",
    ]


def test_a_run_that_is_a_bomb_itself(whole, mini_release):
    lines = b"1 Q0 7 1 1.0 t\n" * 2_000_000
    for pack in (gzip.compress, zstandard.ZstdCompressor().compress):
        (whole / "plain.trec.gz").write_bytes(pack(lines))
        sentence = "plain.trec.gz: unpacks to more than 100 times its size, as no run does"
        assert validate(whole, mini_release) == [sentence]


def test_control_characters_do_not_reach_a_terminal(whole, mini_release):
    changed(whole, system="s\x1b[2J", team="<script>alert(1)</script>", notes="any\x1b")
    assert validate(whole, mini_release) == ["submission.json: $.system: holds control characters"]
    changed(whole, system="s")
    (whole / "a\x1b[2Jb").write_text("x")
    [fault] = validate(whole, mini_release)
    assert fault == "a\\x1b[2Jb: is not listed in submission.json"
