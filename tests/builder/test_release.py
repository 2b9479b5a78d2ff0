"""Writing and opening a release: the same content gives the same bytes, and nothing ever stands there half."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import clients
import polars as pl
import pytest
from drafts import BY_HAND, QUERIES, content, faults, small_draft

from builder import mini as planted
from builder import release as releases
from builder.verify import verify
from eval_kit.authors.draft import Draft, Table
from eval_kit.documents import Column
from eval_kit.errors import UserError
from eval_kit.files.digests import table_digest
from eval_kit.release import MANIFEST, ReleaseError, Variation, open_release
from tests.conftest import Run
from tests.manifests import release_digest

OTHER_TEXTS = ["what is  a dog", *QUERIES["text"][1:]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "place" / "ms-marco-shift"


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
    assert content(one) == content(other)
    assert {"README.md", MANIFEST} < set(content(one))


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
    types = {"id": "string", "text": "string", "score": "int64", "ids": "list<string>"}
    columns = [{"name": name, "type": type} for name, type in types.items()]
    typed = [Column(**column) for column in columns]
    schema = {"id": pl.String, "text": pl.String, "score": pl.Int64, "ids": pl.List(pl.String)}
    frame = pl.DataFrame(rows, schema, orient="row")
    assert table_digest(frame, typed) == reference_digest(columns, rows)
    assert table_digest(frame.reverse(), typed) == reference_digest(columns, rows)
    single = {table_digest(frame[i], typed) for i in range(len(rows))}
    assert len(single) == len(rows), "no two rows look alike"
    assert table_digest(frame.head(0), typed) == reference_digest(columns, [])
    orders = [releases.describe(small_draft(shuffle=seed)) for seed in (None, 1, 2)]
    assert len({manifest.digest for manifest in orders}) == 1


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
    [(what, fault)] = faults(out).items()
    assert "length/test" in what and "content digest differs" in fault
    with pytest.raises(ReleaseError, match="table length/test"):
        open_release(out)


# --- opening what was tampered with


def test_tampered_or_missing_file(out: Path) -> None:
    releases.write(small_draft(), out)
    table = out / "data/qrels/dev-00000-of-00001.parquet"
    whole = table.read_bytes()
    for offset in range(0, len(whole), 97):
        table.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0xFF]) + whole[offset + 1 :])
        try:
            assert open_release(out).table("qrels", "dev").height == 5, "a byte that says nothing"
        except ReleaseError as error:
            assert "qrels" in str(error)
    for damaged in (whole[:-40], b"", b"PAR1"):
        table.write_bytes(damaged)
        with pytest.raises(ReleaseError, match="parquet"):
            open_release(out)
        assert [check.what for check in verify(out) if check.fault] == ["content of qrels/dev (5 rows)"]
    table.unlink()
    with pytest.warns(UserWarning, match="were not downloaded"):
        assert not open_release(out).test_sets
    (out / "LICENSE.md").unlink()
    assert "the folder holds what the manifest lists" in [check.what for check in verify(out) if check.fault]


def test_other_writer_same_content(out: Path) -> None:
    manifest = releases.write(small_draft(), out)
    for table in manifest.tables:
        path = out / table.path
        pl.read_parquet(path).sample(fraction=1, shuffle=True, seed=1).write_parquet(path, compression="lz4")
        assert hashlib.sha256(path.read_bytes()).hexdigest() != table.sha256
    again = open_release(out)
    assert again.digest == manifest.digest
    assert again.table("length", "test").sort("query_id")["cluster"].to_list() == ["short", "short", "long", "short"]
    assert not faults(out)


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
    releases.write(small_draft(), out)
    whole = (out / MANIFEST).read_text()
    for number, edit in enumerate(edits):
        (out / MANIFEST).write_text(whole)
        edit_manifest(out, edit)
        with pytest.raises(ReleaseError, match="the tables"):
            open_release(out)
        assert any(check.what == "release digest" and check.fault for check in verify(out)), number

    (out / MANIFEST).write_text(whole)
    edit_manifest(out, lambda m: m["test_sets"][0].update(queries=7))
    edit_manifest(out, lambda m: m.update(digest=release_digest(m)))
    assert list(faults(out)) == ["test sets and their counts"], "verify goes on"
    assert "has 3 queries" in faults(out)["test sets and their counts"]


def test_verify_finds_broken_rules(out: Path) -> None:
    """Tables whose digests hold, but which do not follow their own rules."""
    draft = small_draft(clusters=["long", "long", "short", "short"])
    twice = pl.concat([draft.tables[1].frame, draft.tables[1].frame[:1]])
    releases.write(replace(draft, tables=[draft.tables[0], replace(draft.tables[1], frame=twice)]), out)
    assert faults(out) == {
        "clusters follow the length rule (length/test)": "1 rows do not, first query 1",
        "each pair is judged once (qrels/dev)": "2 rows are repeated",
    }
    releases.write(small_draft(qrels={"query-id": ["1"], "corpus-id": ["7"], "score": [1]}), out)
    assert list(faults(out).values()) == ["2 are not, first 10", "1 are not, first 2"]


def worded(texts: dict[str, str], base: str = "length.short", invalid: frozenset[str] | None = None) -> Draft:
    """A small draft with typos of one of its test sets."""
    frame = pl.DataFrame({"query_id": list(texts), "text": list(texts.values())})
    variation = Variation(base, "typo", None, None, "typos", invalid, "by hand", "none stated", 2)
    draft = small_draft()
    return replace(draft, tables=[*draft.tables, Table("variations", "typos", frame, BY_HAND)], variations=[variation])


def test_verify_finds_bad_variations(out: Path) -> None:
    for draft, fault in (
        (worded({"1": "waht is a cat", "2": "how"}), "1 queries are not in length.short, first 2"),
        (worded({"1": "waht is a cat", "10": " "}), "1 queries have no text, first 10"),
        (worded({"1": "waht is a cat"}, invalid=frozenset({"10"})), "1 invalid queries have no wording, first 10"),
        (worded({"1": "waht is a cat"}), "it has 1 wordings, the manifest says 2"),
    ):
        releases.write(draft, out)
        [sentence] = faults(out).values()
        assert sentence.endswith(fault)


def test_a_variation_of_no_test_set_is_one_sentence(out: Path, tmp_path: Path, command: Run) -> None:
    releases.write(worded({"1": "waht"}, base="dev"), out)
    run = tmp_path / "bm25.dev.typo.trec"
    run.write_text("1 Q0 7 1 1.0 t\n")
    done = command("eval_kit", "variations", run, "--release", out)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "of dev, which is no" in done.stderr


def test_command_line(out: Path, command: Run) -> None:
    releases.write(small_draft(), out)
    assert command("builder", "verify", out).returncode == 0
    (out / "data/length/test-00000-of-00001.parquet").write_bytes(b"")
    wrong = command("builder", "verify", out, "--json", "-")
    assert wrong.returncode == 1
    report = json.loads(wrong.stdout)
    assert report["faults"] == 1
    assert [row["check"].split(" (")[0] for row in report["checks"] if row["fault"]] == ["content of length/test"]
    nothing = command("builder", "verify", out.parent)
    assert nothing.returncode == 2 and "Traceback" not in nothing.stderr


# --- whole or not at all


def inodes(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_ino for path in folder.rglob("*") if path.suffix != ".lock"}


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
        before = inodes(out.parent)
        with pytest.raises(UserError, match="exists and is not a release"):
            releases.write(small_draft(), out)
        assert inodes(out.parent) == before, what
        shutil.rmtree(out.parent)

    out.mkdir(parents=True)
    releases.write(small_draft(), out)  # an empty folder
    new = releases.write(small_draft(texts=OTHER_TEXTS), out)  # a release
    assert open_release(out).digest == new.digest and beside(out) == {out.name}
    (out.parent / "file").write_text("x")
    with pytest.raises(UserError, match="Could not write"):
        releases.write(small_draft(), out.parent / "file" / "ms-marco-shift")


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("step", "call", "old", "failure"),
    [
        ("pyarrow.parquet.write_table", 2, True, FULL),
        ("pathlib.Path.write_text", 1, True, FULL),
        ("pathlib.Path.write_text", 3, False, FULL),
        ("os.fsync", 1, True, FULL),
        ("os.rename", 1, True, FULL),
        ("os.rename", 1, False, FULL),  # has but one renaming
        ("os.rename", 2, True, FULL),
        ("os.rename", 2, True, KeyboardInterrupt()),
        ("pyarrow.parquet.write_table", 2, False, KeyboardInterrupt()),
    ],
)
def test_failing_step_leaves_what_was_there(
    out: Path, monkeypatch: pytest.MonkeyPatch, step: str, call: int, old: bool, failure: BaseException
) -> None:
    if old:
        releases.write(small_draft(), out)
    before = content(out)
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
        with pytest.raises((UserError, KeyboardInterrupt)) as caught:
            releases.write(small_draft(texts=OTHER_TEXTS), out)
    if isinstance(caught.value, UserError):
        assert "No space left on device" in str(caught.value)
    assert content(out) == before
    assert beside(out) == ({out.name} if old else set())


WRITE = """
import resource, sys
from pathlib import Path
from builder import release
from drafts import QUERIES, small_draft
from eval_kit.errors import UserError

out, size, *texts = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
for text in texts:
    try:
        release.write(small_draft(texts=[text, *QUERIES["text"][1:]]), Path(out))
    except UserError:
        sys.exit(7)
"""


def writing(out: Path, size: int, *texts: str) -> clients.Running:
    """A process that writes the release with each of these texts, in which no file grows beyond ``size`` bytes."""
    return clients.Running(["-c", WRITE, str(out), str(size), *texts], os.environ, Path(__file__).parent)


@pytest.mark.parametrize("size", [100, 2_000])
def test_disk_that_takes_no_more(out: Path, size: int) -> None:
    """The operating system's own refusal, in the first table or in a later file."""
    releases.write(small_draft(), out)
    before = content(out)
    assert writing(out, size, "other").wait().returncode == 7
    assert content(out) == before and beside(out) == {out.name}


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
    events = []
    def hook(event, arguments):
        if changes(event, arguments):
            events.append(event)
            if len(events) == step:
                os.kill(os.getpid(), signal.SIGKILL)
    draft = small_draft(texts=["killed", "b", "c", "d"])
    sys.addaudithook(hook)
    release.write(draft, out)
    (root / "events").write_text(" ".join(events))
    os._exit(0)

def build(step):
    out = root / str(step) / "ms-marco-shift"
    out.parent.mkdir(parents=True)
    if old.is_dir():
        shutil.copytree(old, out)
    pid = os.fork()  # before this process has used polars, whose threads a fork would lose
    if not pid:
        child(out, step)
    return os.waitpid(pid, 0)[1]

assert build(0) == 0
events = (root / "events").read_text().split()
for step in range(1, len(events) + 1):
    if step % 3 == 0 or "os.rename" in events[max(step - 2, 0) : step]:
        status = build(step)
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        print(step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [False, True])
def test_kill_at_every_third_step_and_around_the_renamings(tmp_path: Path, replaced: bool) -> None:
    """SIGKILL before a file or folder that a build makes, renames or removes."""
    old, root = tmp_path / "old" / "ms-marco-shift", tmp_path / "killed"
    whole = {releases.describe(small_draft(texts=["killed", "b", "c", "d"])).digest}
    if replaced:
        whole.add(releases.write(small_draft(), old).digest)
    command = [sys.executable, "-c", KILLED, Path(__file__).parent, root, old]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    steps = list(map(int, done.stdout.split()))
    assert len(steps) > 5
    states = set()
    for step in (0, *steps):
        out = root / str(step) / "ms-marco-shift"
        aside = out.with_name(f".{out.name}.replaced")
        states.add((out.exists(), aside.exists()))
        if out.exists() or aside.exists():
            assert open_release(out if out.exists() else aside).digest in whole
        else:
            assert not replaced
        new = releases.write(small_draft(texts=OTHER_TEXTS), out)
        assert open_release(out).digest == new.digest
        assert beside(out) == {out.name}
    moments = {(True, False), (False, True), (True, True)} if replaced else {(False, False), (True, False)}
    assert states == moments, "killed before, between and after the renamings"


def test_failing_build_after_a_killed_one(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = releases.write(small_draft(), out)
    out.rename(out.with_name(f".{out.name}.replaced"))
    monkeypatch.setattr("builder.release.write_table", lambda *arguments: os.close(-1))
    with pytest.raises(UserError):
        releases.write(small_draft(texts=OTHER_TEXTS), out)
    assert open_release(out).digest == old.digest and beside(out) == {out.name}


@pytest.mark.slow
def test_builds_at_once(out: Path) -> None:
    builds = [writing(out, 10**9, *[text] * 8) for text in ("this", "that")]
    assert [build.wait().returncode for build in builds] == [0, 0]
    assert not faults(out)
    assert open_release(out).table("length", "test")["text"][0] in {"this", "that"}
    assert beside(out) == {out.name}
