"""Writing and opening a release: the same content gives the same bytes, and nothing ever stands there half."""

import errno
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from drafts import BY_HAND, QUERIES, small_draft

from builder import mini as planted
from builder import release as releases
from builder.release import Draft, Table
from builder.verify import verify
from eval_kit.documents import Column
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.digests import table_digest
from eval_kit.release import MANIFEST, Release, ReleaseError, Variation, open_release
from tests.manifests import release_digest

OTHER_TEXTS = ["what is  a dog", *QUERIES["text"][1:]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "place" / "ms-marco-shift"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def beside(out: Path) -> set[str]:
    """What stands in the release's parent folder, without the lock that builds leave."""
    return {path.name for path in out.parent.iterdir() if path.suffix != ".lock"}


def edit_manifest(out: Path, edit: Callable[[dict], object]) -> None:
    manifest = json.loads((out / MANIFEST).read_text())
    edit(manifest)
    (out / MANIFEST).write_text(json.dumps(manifest))


# --- the same content, the same digests


def test_same_draft_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "1" / "ms-marco-shift", tmp_path / "2" / "ms-marco-shift"
    for place in (one, other):
        releases.write(planted.draft(queries=500, seed=3), place)
    assert files(one) == files(other)
    assert {"README.md", MANIFEST} < set(files(one))


def test_row_order_does_not_count(tmp_path: Path) -> None:
    manifests = [releases.describe(small_draft(shuffle=seed)) for seed in (None, 1, 2)]
    digests = [[table.digest for table in one.tables] + [one.digest] for one in manifests]
    assert digests[0] == digests[1] == digests[2]


def reference_digest(columns: list[dict[str, str]], rows: list[tuple[object, ...]]) -> str:
    """The definition in eval_kit/digests.py, once more and plainly."""

    def netstring(text: str) -> bytes:
        return f"{len(text.encode())}:".encode() + text.encode() + b","

    def field(value: object) -> bytes:
        if value is None:
            return b"~"
        return netstring(b"".join(map(field, value)).decode() if isinstance(value, list) else str(value))

    header = b"".join(netstring(column["name"]) + netstring(column["type"]) for column in columns)
    return hashlib.sha256(b"\n".join([header, *sorted(b"".join(map(field, row)) for row in rows), b""])).hexdigest()


def test_digest_is_as_defined() -> None:
    rows = [
        ("1", "naïve ☕", -3, ["a", "b"]),
        ("1", "naïve ☕", -3, ["ab"]),
        ("10", "", None, []),
        ("2", None, 0, None),
        ("é", "a\nb", 2**62, ["", None, "~"]),
        ("é", "~", 1, [None]),
    ]
    columns = [
        {"name": "id", "type": "string"},
        {"name": "text", "type": "string"},
        {"name": "score", "type": "int64"},
        {"name": "ids", "type": "list<string>"},
    ]
    typed = [Column(**column) for column in columns]
    schema = {"id": pl.String, "text": pl.String, "score": pl.Int64, "ids": pl.List(pl.String)}
    frame = pl.DataFrame(rows, schema, orient="row")
    assert table_digest(frame, typed) == reference_digest(columns, rows)
    assert table_digest(frame.reverse(), typed) == reference_digest(columns, rows)
    single = {table_digest(frame[i], typed) for i in range(len(rows))}
    assert len(single) == len(rows), "no two rows look alike"
    assert table_digest(frame.head(0), typed) == reference_digest(columns, [])


def test_label_counts_by_its_name() -> None:
    columns = [Column(name="cluster", type="label", labels=["short", "long"])]
    names = pl.DataFrame({"cluster": QUERIES["cluster"]})
    for order in (["short", "long"], ["long", "short"]):
        assert table_digest(names.cast(pl.Enum(order)), columns) == table_digest(names, columns)


def test_one_changed_text_is_found(out: Path) -> None:
    old = releases.write(small_draft(), out)
    new = releases.describe(small_draft(texts=OTHER_TEXTS))
    differ = [a.config for a, b in zip(old.tables, new.tables, strict=True) if a.digest != b.digest]
    assert differ == ["length"] and old.digest != new.digest

    other = out.parent / "other" / "ms-marco-shift"
    releases.write(small_draft(texts=OTHER_TEXTS), other)
    shutil.copy(other / "data/length/test-00000-of-00001.parquet", out / "data/length")
    faults = [one for one in verify(out) if one.fault]
    assert len(faults) == 1 and "length/test" in faults[0].what and "content digest differs" in faults[0].fault
    with pytest.raises(ReleaseError, match="table length/test is not what the manifest says"):
        open_release(out)


def test_mini_release_has_no_fault(mini_release: Release) -> None:
    checks = verify(mini_release.folder)
    assert [one for one in checks if one.fault] == []


# --- opening what was tampered with


def test_tampered_or_missing_file(out: Path) -> None:
    releases.write(small_draft(), out)
    table = out / "data/qrels/dev-00000-of-00001.parquet"
    whole = table.read_bytes()
    for place in range(0, len(whole), 97):
        table.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert open_release(out).table("qrels", "dev").height == 5, "a byte that says nothing"
        except ReleaseError as error:
            assert "qrels" in str(error)
    for damaged in (whole[:-40], b"", b"PAR1"):
        table.write_bytes(damaged)
        with pytest.raises(ReleaseError, match="not a readable parquet file"):
            open_release(out)
        assert [one.what for one in verify(out) if one.fault] == ["content of qrels/dev (5 rows)"]
    table.unlink()
    with pytest.raises(ReleaseError, match="missing, though the manifest lists it"):
        open_release(out)


def test_other_writer_same_content(out: Path) -> None:
    manifest = releases.write(small_draft(), out)
    for table in manifest.tables:
        path = out / table.path
        pl.read_parquet(path).sample(fraction=1, shuffle=True, seed=1).write_parquet(path, compression="lz4")
        assert hashlib.sha256(path.read_bytes()).hexdigest() != table.sha256
    again = open_release(out)
    assert again.digest == manifest.digest
    assert again.table("length", "test").sort("query_id")["cluster"].to_list() == ["short", "short", "long", "short"]
    assert not [one for one in verify(out) if one.fault]


def test_edited_manifest(out: Path) -> None:
    edits: list[Callable[[dict], object]] = [
        lambda m: m["tables"][0].update(digest="0" * 64),
        lambda m: m["tables"].pop(),
        lambda m: m["tables"][0]["columns"][2].update(labels=["long", "short"]),
        lambda m: m["test_sets"].pop(),
        lambda m: m["test_sets"][0].update(measures=["R@1000"]),
        lambda m: m["test_sets"][0].update(queries=7),
        lambda m: m["missing"].append({"what": "x", "because": "y"}),
        lambda m: m.update(collection="msmarco-passage"),
        lambda m: m.update(digest="0" * 64),
    ]
    for number, edit in enumerate(edits):
        releases.write(small_draft(), out)
        edit_manifest(out, edit)
        with pytest.raises(ReleaseError, match="its digest is not that of the tables it lists"):
            open_release(out)
        assert any(one.what == "release digest" and one.fault for one in verify(out)), number


def test_verify_goes_past_a_wrong_count(out: Path) -> None:
    releases.write(small_draft(), out)
    edit_manifest(out, lambda m: m["test_sets"][0].update(queries=7))
    edit_manifest(out, lambda m: m.update(digest=release_digest(m)))
    faults = [one for one in verify(out) if one.fault]
    assert [one.what for one in faults] == ["test sets and their counts"]
    assert "length.short has 3 queries, the manifest says 7" in faults[0].fault


def test_verify_finds_broken_rules(out: Path) -> None:
    """Tables whose digests hold, but which do not follow their own rules."""
    draft = small_draft(clusters=["long", "long", "short", "short"])
    twice = pl.concat([draft.tables[1].frame, draft.tables[1].frame[:1]])
    releases.write(replace(draft, tables=[draft.tables[0], replace(draft.tables[1], frame=twice)]), out)
    faults = {one.what: one.fault for one in verify(out) if one.fault}
    assert faults == {
        "clusters follow the length rule (length/test)": "1 rows do not, first query 1",
        "each pair is judged once (qrels/dev)": "2 rows are repeated",
    }
    releases.write(small_draft(qrels={"query-id": ["1"], "corpus-id": ["7"], "score": [1]}), out)
    assert [one.fault for one in verify(out) if one.fault] == ["2 are not, first 10", "1 are not, first 2"]


def worded(texts: dict[str, str], base: str = "length.short", invalid: frozenset[str] | None = None) -> Draft:
    """A small draft with typos of one of its test sets."""
    frame = pl.DataFrame({"query_id": list(texts), "text": list(texts.values())})
    variation = Variation(base, "typo", None, None, "typos", invalid, "by hand", "none stated", 2)
    draft = small_draft()
    return replace(draft, tables=[*draft.tables, Table("variations", "typos", frame, BY_HAND)], variations=[variation])


@pytest.mark.parametrize(
    ("draft", "fault"),
    [
        (worded({"1": "waht is a cat", "2": "how"}), "1 queries are not in length.short, first 2"),
        (worded({"1": "waht is a cat", "10": " "}), "1 queries have no text, first 10"),
        (worded({"1": "waht is a cat"}, invalid=frozenset({"10"})), "1 invalid queries have no wording, first 10"),
    ],
)
def test_verify_finds_bad_variations(out: Path, draft: Draft, fault: str) -> None:
    releases.write(draft, out)
    (found,) = [one.fault for one in verify(out) if one.fault]
    assert found.endswith(fault)


def test_a_variation_of_no_test_set_is_one_sentence(
    out: Path, tmp_path: Path, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    releases.write(worded({"1": "waht"}, base="dev"), out)
    run = tmp_path / "bm25.dev.typo.trec"
    run.write_text("1 Q0 7 1 1.0 t\n")
    done = command("eval_kit", "variations", run, "--release", out)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "variations/typos words the queries of dev, which is no test set" in done.stderr


def test_command_line(out: Path, command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    built = command("builder", "build", "mini", "--queries", 500, "--out", out)
    assert built.returncode == 0, built.stderr
    assert command("builder", "verify", out).returncode == 0
    (out / "data/wh/test-00000-of-00001.parquet").write_bytes(b"")
    wrong = command("builder", "verify", out, "--json")
    assert wrong.returncode == 1
    report = json.loads(wrong.stdout)
    assert report["faults"] == 1
    assert [one["check"].split(" (")[0] for one in report["checks"] if one["fault"]] == ["content of wh/test"]
    nothing = command("builder", "verify", out.parent)
    assert nothing.returncode == 2 and "Traceback" not in nothing.stderr


# --- whole or not at all


def test_only_a_release_or_nothing_is_replaced(out: Path) -> None:
    foreign = {
        "folder": lambda: (out.mkdir(), (out / "thesis.tex").write_text("x")),
        "file": lambda: out.write_text("x"),
        "link to a folder": lambda: ((out.parent / "elsewhere").mkdir(), out.symlink_to("elsewhere")),
        "link to nothing": lambda: out.symlink_to("nowhere"),
        "somebody's manifest": lambda: (out.mkdir(), (out / MANIFEST).write_text('{"name": "my web app"}')),
        "no JSON object": lambda: (out.mkdir(), (out / MANIFEST).write_text("[]")),
        "not readable": lambda: (out.mkdir(), (out / MANIFEST).write_bytes(b"\xff")),
    }
    for what, make in foreign.items():
        out.parent.mkdir()
        make()
        before = {path: path.lstat() for path in out.parent.rglob("*")}
        with pytest.raises(UserError, match="exists and is not a release; nothing was written"):
            releases.write(small_draft(), out)
        after = {path: path.lstat() for path in out.parent.rglob("*") if path.suffix != ".lock"}
        assert after == before or [(path, s.st_ino) for path, s in after.items()] == [
            (path, s.st_ino) for path, s in before.items()
        ], what
        shutil.rmtree(out.parent)

    out.mkdir(parents=True)
    releases.write(small_draft(), out)  # an empty folder
    new = releases.write(small_draft(texts=OTHER_TEXTS), out)  # a release
    assert open_release(out).digest == new.digest and beside(out) == {out.name}


def test_unwritable_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        releases.write(small_draft(), tmp_path / "file" / "ms-marco-shift")


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("step", "call"),
    [
        ("pyarrow.parquet.write_table", 2),
        ("pathlib.Path.write_text", 1),
        ("pathlib.Path.write_text", 3),
        ("os.fsync", 1),
        ("os.rename", 1),
        ("os.rename", 2),
    ],
)
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_failing_step_leaves_what_was_there(
    out: Path, monkeypatch: pytest.MonkeyPatch, old: bool, step: str, call: int, failure: BaseException
) -> None:
    if old:
        releases.write(small_draft(), out)
    before = files(out)
    module, name = step.rsplit(".", 1)
    target = Path if module == "pathlib.Path" else __import__(module, fromlist=[name])
    original, count = getattr(target, name), 0

    def failing(*arguments: object, **options: object) -> object:
        nonlocal count
        count += 1
        if count == call:
            raise failure
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(target, name, failing)
        if step == "os.rename" and call == 2 and not old:
            releases.write(small_draft(), out)  # has but one renaming
            return
        with pytest.raises((UserError, KeyboardInterrupt)) as caught:
            releases.write(small_draft(texts=OTHER_TEXTS), out)
    if isinstance(caught.value, UserError):
        assert "cannot be written: No space left on device; nothing was changed" in str(caught.value)
    assert files(out) == before
    assert beside(out) == ({out.name} if old else set())


def write_within(out: Path, size: int) -> None:
    """Exit status 7 if the release could not be written because files may not grow beyond ``size``."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        releases.write(small_draft(texts=OTHER_TEXTS), out)
    except UserError:
        sys.exit(7)


@pytest.mark.parametrize("size", [100, 2_000])
def test_disk_that_takes_no_more(out: Path, size: int) -> None:
    """The operating system's own refusal, in the first table or in a later file."""
    releases.write(small_draft(), out)
    before = files(out)
    process = multiprocessing.get_context("spawn").Process(target=write_within, args=(out, size))
    process.start()
    process.join()
    assert process.exitcode == 7
    assert files(out) == before and beside(out) == {out.name}


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import datasets, huggingface_hub.repocard, jinja2, jsonschema, polars, pyarrow.parquet, builder.card
sys.path.insert(0, sys.argv[1])
from drafts import small_draft
from builder import release

root, old = Path(sys.argv[2]), Path(sys.argv[3])

def changes(event, arguments):
    if event == "open":
        return str(root) in str(arguments[0]) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    return event in {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}

def child(out, step):
    left = [step]
    def hook(event, arguments):
        if changes(event, arguments):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
    draft = small_draft(texts=["killed", "b", "c", "d"])
    sys.addaudithook(hook)
    release.write(draft, out)
    os._exit(0)

for step in range(1, 1000):
    out = root / str(step) / "ms-marco-shift"
    out.parent.mkdir(parents=True)
    if old.is_dir():
        shutil.copytree(old, out)
    pid = os.fork()  # before this process has used polars, whose threads a fork would lose
    if not pid:
        child(out, step)
    status = os.waitpid(pid, 0)[1]
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
print(step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [False, True])
def test_kill_at_every_step(tmp_path: Path, replaced: bool) -> None:
    """SIGKILL before each file or folder that a build makes, renames or removes."""
    old, root = tmp_path / "old" / "ms-marco-shift", tmp_path / "killed"
    whole = {releases.describe(small_draft(texts=["killed", "b", "c", "d"])).digest}
    if replaced:
        whole.add(releases.write(small_draft(), old).digest)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, Path(__file__).parent, root, old], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps > 12
    states = set()
    for step in range(1, steps + 1):
        out = root / str(step) / "ms-marco-shift"
        aside = list(out.parent.glob(f".{out.name}.*.part/old/{out.name}"))
        states.add((out.exists(), bool(aside)))
        if out.exists():
            assert open_release(out).digest in whole
        elif aside:
            assert open_release(aside[0]).digest in whole
        else:
            assert not replaced
        if aside:
            assert open_release(out).digest in whole, "whoever opens the release brings it back"
        new = releases.write(small_draft(texts=OTHER_TEXTS), out)
        assert open_release(out).digest == new.digest
        assert beside(out) == {out.name}
    moments = {(True, False), (False, True), (True, True)} if replaced else {(False, False), (True, False)}
    assert states == moments, "killed before, between and after the renamings"


def test_failing_build_after_a_killed_one(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = releases.write(small_draft(), out)
    work = out.with_name(f".{out.name}.{'a' * 32}.part")
    (work / "old").mkdir(parents=True)
    (work / atomic.MARK).touch()
    out.rename(work / "old" / out.name)
    monkeypatch.setattr("builder.release.write_table", lambda *arguments: os.close(-1))
    with pytest.raises(UserError):
        releases.write(small_draft(texts=OTHER_TEXTS), out)
    assert open_release(out).digest == old.digest and beside(out) == {out.name}


def build_often(out: Path, text: str) -> None:
    for _ in range(8):
        releases.write(small_draft(texts=[text, *QUERIES["text"][1:]]), out)


@pytest.mark.slow
def test_builds_at_once(out: Path) -> None:
    context = multiprocessing.get_context("spawn")
    builds = [context.Process(target=build_often, args=(out, text)) for text in ("one", "other")]
    for build in builds:
        build.start()
    for build in builds:
        build.join(60)
    assert [build.exitcode for build in builds] == [0, 0]
    assert not [one for one in verify(out) if one.fault]
    assert open_release(out).table("length", "test")["text"][0] in {"one", "other"}
    assert beside(out) == {out.name}
