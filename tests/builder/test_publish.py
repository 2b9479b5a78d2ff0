"""Publishing, and loading what was published, by unmodified clients, each in its own process and ``HF_HOME``.

Each is a fork of :mod:`clients`' server, which spares it most of its imports.

The Hub is :mod:`hub_server` on the loopback interface: nothing leaves this machine.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import clients
import polars as pl
import pytest
from drafts import BY_HAND, small_draft
from hub_server import GITATTRIBUTES, TOKEN, Blob, Hub, Repository, Tree

from builder import card
from builder import release as releases
from builder.publish import check_folder
from builder.release import Draft, Table
from eval_kit.documents import Lack
from eval_kit.errors import UserError
from eval_kit.release import open_release, read_manifest

pytestmark = pytest.mark.slow

REPOSITORY = "org/ms-marco-shift"
WRITES = {"preupload", "lfs_batch", "put", "part", "complete", "xet_token", "xorb", "shard", "commit", "tag"}
NO_XET = {"HF_HUB_DISABLE_XET": "1"}
TRANSFERS = {
    "xet": {"xorb", "shard", "reconstruction", "xorb_data"},
    "lfs": {"lfs_batch", "put"},
    "parts": {"lfs_batch", "part", "complete"},
}
FAST_XET = {
    "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "1",
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "50ms",
    "HF_XET_CLIENT_RETRY_MAX_DURATION": "2s",
}

type Done = subprocess.CompletedProcess[str]


def environment_of(hub: Hub, home: Path) -> dict[str, str]:
    """The environment of a user of the Hub ``hub``, whose caches are in ``home``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TQDM_DISABLE": "1",
        "NO_PROXY": "127.0.0.1",
        "COLUMNS": "200",
    }
    return {**inherited, **own, **FAST_XET}


def client(hub: Hub, home: Path, *arguments: object, **environment: str) -> Done:
    """Run python with these arguments as such a user."""
    return clients.run([*map(str, arguments)], {**environment_of(hub, home), **environment}, home.parent)


def publish(hub: Hub, home: Path, folder: Path, *options: object, tag: str = "v1.0.0", **environment: str) -> Done:
    repository = [] if "--repo-id" in options else ["--repo-id", REPOSITORY]
    return client(hub, home, "-m", "builder", "publish", folder, *repository, "--tag", tag, *options, **environment)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tree(blobs: Tree) -> dict[str, bytes]:
    return {path: blob.content for path, blob in blobs.items() if path != ".gitattributes"}


def put_release(hub: Hub, files: Path | dict[str, bytes], tag: str | None = None, id: str = REPOSITORY) -> None:
    """Place a release, or other files, in the Hub's state, without a client."""
    repository = hub.repositories.setdefault(id, Repository())
    if not repository.head:
        repository.commit("initial commit", {".gitattributes": Blob(GITATTRIBUTES, False)})
    contents = content(files) if isinstance(files, Path) else files
    blobs = {name: Blob(data, name.endswith(".parquet")) for name, data in contents.items()}
    oid = repository.commit("by hand", {".gitattributes": Blob(GITATTRIBUTES, False), **blobs}).oid
    if tag:
        repository.tags[tag] = oid


def opens(hub: Hub, home: Path, *revisions: str | None, **environment: str) -> list[str]:
    """What opening the release at each revision, in one process, gives: version and digest, or one sentence."""
    names = json.dumps([[REPOSITORY, revision] for revision in revisions])
    done = client(hub, home, "-c", OPEN, names, **{"HF_HUB_DOWNLOAD_TIMEOUT": "1", **environment})
    assert (done.returncode, done.stderr) == (0, "")
    return [outcome.splitlines()[-1] for outcome, *_ in json.loads(done.stdout)]


def load(hub: Hub, home: Path, *revisions: str, config: str = "") -> dict[str, dict[str, list[Any]]]:
    """The columns of each table, or of those of one config, that ``load_dataset`` reads at these revisions."""
    done = client(hub, home, "-c", LOAD, REPOSITORY, config, *revisions)
    assert done.returncode == 0 and TOKEN not in done.stdout + done.stderr, done.stderr
    tables = {}
    for table, labels, columns in map(json.loads, done.stdout.splitlines()):
        for column, names in labels.items():
            columns[column] = [names[code] for code in columns[column]]
        tables[table] = columns
    return tables


def columns_of(folder: Path, revision: str, config: str = "") -> dict[str, dict[str, list[Any]]]:
    """The same of a release in a folder."""
    entries = [entry for entry in read_manifest(folder).tables if config in ("", entry.config)]
    frames = {f"{revision} {entry.config}/{entry.split}": pl.read_parquet(folder / entry.path) for entry in entries}
    return {table: frame.to_dict(as_series=False) for table, frame in frames.items()}


def named(folder: Path) -> str:
    """A release's version and digest, as OPEN says them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return f"{manifest['version']} {manifest['digest']}"


def user_error(done: Done) -> str:
    """The one sentence that a failed command printed."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("builder: "), done.stderr
    return lines[0]


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Draft], Path]:
    def write(draft: Draft) -> Path:
        folder = tmp_path_factory.mktemp("release") / "ms-marco-shift"
        releases.write(draft, folder)
        return folder

    return write


@pytest.fixture(scope="session")
def first(build: Callable[[Draft], Path]) -> Path:
    """Version 1.0.0 of a small release, with a table that the next one lacks."""
    draft = small_draft()
    extra = Table("validation", "validation", pl.DataFrame({"query_id": ["5"], "text": ["five"]}), BY_HAND)
    return build(replace(draft, tables=[*draft.tables, extra]))


@pytest.fixture(scope="session")
def second(build: Callable[[Draft], Path], first: Path) -> Path:
    """Version 1.1.0: one table gone, one changed, one new."""
    changed = small_draft(
        texts=["what is  a cat", "how do dogs say and bark", "naïve café ☕ prices", "d\\ne"], version="1.1.0"
    )
    random = pl.DataFrame({"query_id": [str(i) for i in range(20_000)]}).with_columns(text=pl.col("query_id").hash(1))
    extra = Table("topic", "train", random.with_columns(pl.col("text").cast(pl.String)), BY_HAND)
    return build(replace(changed, tables=[*changed.tables, extra]))


@pytest.fixture(scope="session")
def changed(build: Callable[[Draft], Path]) -> Path:
    """Other content as version 1.0.0."""
    return build(small_draft(texts=["what is a dog", "b", "c d e", "f"], clusters=["short"] * 4, names=("short",)))


LOAD = """
import json, sys
from datasets import get_dataset_config_names, load_dataset
repository, config, *revisions = sys.argv[1:]
for revision in revisions:
    for config in [config] if config else get_dataset_config_names(repository, revision=revision):
        streams = load_dataset(repository, config, revision=revision, streaming=True)
        for split, rows in load_dataset(repository, config, revision=revision).items():
            assert list(rows) == list(streams[split])
            labels = {name: kind.names for name, kind in rows.features.items() if hasattr(kind, "names")}
            print(json.dumps([f"{revision} {config}/{split}", labels, rows.to_dict()]))
"""
OPEN = """
import contextlib, io, json, sys, time
from huggingface_hub.utils import _http
from eval_kit.errors import reporting
from eval_kit.release import open_release

slept = []
_http.time = type("time", (), {"sleep": slept.append, "monotonic": time.monotonic})
outcomes = []
for name, revision in json.loads(sys.argv[1]):
    slept.clear()
    begun = time.monotonic()
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            with reporting("open"):
                release = open_release(name, revision)
                for config, splits in release.configs.items():
                    for split in splits:
                        release.table(config, split)
                outcome = f"{release.version} {release.digest}"
        except SystemExit as end:
            assert end.code == 2
            outcome = err.getvalue()
            assert outcome.splitlines()[-1].startswith((f"open: {name}", "open: /")), outcome
    outcomes.append([outcome, sum(slept), time.monotonic() - begun])
print(json.dumps(outcomes))
"""
IR_DATASETS = """
import json, sys, warnings
warnings.filterwarnings("ignore", "no release at")
import ir_datasets, eval_kit.integrations.irds as irds
names = irds.register(sys.argv[1], sys.argv[2]) if len(sys.argv) > 2 else list(ir_datasets.registry)
dataset = ir_datasets.load(next(name for name in names if name.endswith("shift/length/short")))
print(json.dumps({"queries": [tuple(query) for query in dataset.queries_iter()],
                  "qrels": [tuple(row)[:3] for row in dataset.qrels_iter()],
                  "docs": [tuple(doc) for doc in dataset.docs_iter()]}))
"""


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_round_trip(transfer: str, hub: Hub, tmp_path: Path, build: Callable[[Draft], Path]) -> None:
    draft = small_draft()
    negatives = pl.DataFrame({"query_id": ["1", "2", "10"], "passage_ids": [["70", "8"], [], ["9"]]})
    extra = [Table("negatives", "train", negatives, BY_HAND), Table("qrels", "train", draft.tables[1].frame, BY_HAND)]
    folder = build(replace(draft, tables=[*draft.tables, *extra]))
    (folder / "reports/similarity.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    card.write(folder)
    own = {} if transfer == "xet" else NO_XET
    hub.part_bytes = 100 if transfer == "parts" else None
    done = publish(hub, tmp_path / "publisher", folder, **own)
    assert done.returncode == 0, done.stderr
    assert "checksums agree" in done.stdout and "/s)" in done.stdout and done.stderr.strip() == ""
    repository = hub.repositories[REPOSITORY]
    assert tree(repository.commits[repository.head].tree) == content(folder)
    assert repository.tags == {"v1.0.0": repository.head} and len(repository.commits) == 2

    outputs = [done.stdout, done.stderr]
    if transfer == "xet":
        seen, commits = len(hub.requests), dict(repository.commits)
        again = publish(hub, tmp_path / "publisher", folder)
        assert again.returncode == 0 and "nothing to do" in again.stdout
        assert not WRITES & set(hub.steps()[seen:]) and repository.commits == commits
        outputs += [again.stdout, again.stderr, *read_everywhere(hub, folder, tmp_path)]
    assert not any(TOKEN in output for output in outputs)
    assert set().union(*TRANSFERS.values()) & set(hub.steps()) == TRANSFERS[transfer]


def read_everywhere(hub: Hub, folder: Path, tmp_path: Path) -> list[str]:
    """Check that unmodified clients read what was published; returns what they printed."""
    assert load(hub, tmp_path / "load", "v1.0.0") == columns_of(folder, "v1.0.0")
    hf, local = Path(sys.executable).with_name("hf"), tmp_path / "downloaded"
    download = (hf, "download", REPOSITORY, "--repo-type", "dataset", "--revision", "v1.0.0", "--local-dir", local)
    done = client(hub, tmp_path / "hf", *download)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(local / ".cache")
    assert content(local) == {**content(folder), ".gitattributes": GITATTRIBUTES}
    revisions = ("v1.0.0", None, hub.repositories[REPOSITORY].head)
    assert opens(hub, tmp_path / "open", *revisions) == [named(folder)] * 3
    return [done.stdout, done.stderr]


BROKE, REFUSED, FAILED = "the connection to the Hub broke", "cannot be reached", "the Hub failed (HTTP 500)"
TOKEN_REFUSED, FORBIDDEN, NOT_THERE = "log in with 'hf auth login'", "the token may not do that", "no such repository"


class Case(NamedTuple):
    """What befalls a publish, and which words its sentence must have: none if the client gets over it by itself."""

    transfer: str
    step: str
    act: int | str
    words: str | None
    times: int = 1_000
    after: int = 0


CASES = [
    *(Case("lfs", "create", act, words) for act, words in ((500, FAILED), ("lost", BROKE), ("kill", BROKE))),
    *(Case("lfs", "refs", act, words) for act, words in (("reset", BROKE), (404, NOT_THERE))),
    Case("lfs", "tree", "kill", REFUSED),
    Case("lfs", "validate_yaml", 500, FAILED),
    *(Case("lfs", "preupload", act, words) for act, words in ((401, TOKEN_REFUSED), ("kill", REFUSED))),
    Case("lfs", "preupload", "lost", None, times=1),
    *(Case("lfs", "lfs_batch", act, words) for act, words in ((403, FORBIDDEN), ("reset", BROKE))),
    Case("lfs", "put", 403, FORBIDDEN),
    Case("lfs", "put", "kill", REFUSED, after=1),
    *(Case("lfs", "put", act, None, times=1, after=1) for act in (500, "lost")),
    *(Case("lfs", "commit", act, words) for act, words in ((404, NOT_THERE), (409, "a conflict with"))),
    *(Case("lfs", "commit", act, words) for act, words in ((412, "somebody else changed"), ("reset", BROKE))),
    *(Case("lfs", "commit", act, BROKE) for act in ("lost", "kill")),
    Case("lfs", "commit", "stall", "did not answer in time"),
    *(Case("lfs", "tree", act, words, after=1) for act, words in ((500, FAILED), ("kill", REFUSED))),
    *(Case("lfs", "tag", act, words) for act, words in ((403, FORBIDDEN), ("lost", BROKE), ("kill", BROKE))),
    Case("parts", "part", "kill", REFUSED, after=1),
    Case("parts", "complete", "kill", REFUSED),
    *(Case("parts", step, "lost", None, times=1, after=after) for step, after in (("part", 1), ("complete", 0))),
    *(Case("xet", "xet_token", act, words) for act, words in ((401, TOKEN_REFUSED), ("reset", BROKE))),
    *(Case("xet", "xorb", act, words) for act, words in ((500, "(HTTP 500)"), ("lost", BROKE))),
    *(Case("xet", "shard", act, words) for act, words in (("lost", BROKE), ("kill", BROKE))),
    Case("xet", "commit", "lost", BROKE),
]


def test_fault_then_the_same_again(tmp_path_factory: pytest.TempPathFactory, first: Path, second: Path) -> None:
    """A publish of 1.1.0 over 1.0.0 meets each; then it is gone and the same command runs again.

    All cases at once, since the clients mostly wait between their retries.
    """
    old, new = content(first), content(second)

    def meet(case: Case) -> None:
        hub, home = Hub(), tmp_path_factory.mktemp("fault") / "home"
        put_release(hub, first, "v1.0.0")
        repository = hub.repositories[REPOSITORY]
        hub.fault(case.step, case.act, case.times, case.after)
        hub.part_bytes = 100_000 if case.transfer == "parts" else None
        own = {} if case.transfer == "xet" else NO_XET
        options = ["--timeout", 3] if case.act == "stall" else []
        failed = publish(hub, home, second, *options, tag="v1.1.0", **own)
        if case.words is None:
            assert failed.returncode == 0, failed.stderr
        else:
            sentence = user_error(failed)
            assert case.words in sentence and sentence.startswith(f"builder: {REPOSITORY}: ")
        assert tree(repository.commits[repository.head].tree) in (old, new)
        tags = {name: tree(repository.commits[oid].tree) for name, oid in repository.tags.items()}
        assert tags == {"v1.0.0": old, "v1.1.0": new} or tags == {"v1.0.0": old}

        hub.heal()
        again = publish(hub, home, second, tag="v1.1.0", **own)
        hub.stop()
        assert again.returncode == 0, again.stderr
        assert [tree(commit.tree) for commit in repository.commits.values()] == [{}, old, new]
        assert repository.commits[repository.head].parent == repository.tags["v1.0.0"]
        assert repository.tags["v1.1.0"] == repository.head
        assert TOKEN not in failed.stdout + failed.stderr + again.stdout + again.stderr
        assert "signature" not in failed.stderr  # of an upload address

    with ThreadPoolExecutor(12) as pool:
        jobs = {case: pool.submit(meet, case) for case in CASES}
    failures = {case: job.exception() for case, job in jobs.items() if job.exception()}
    assert failures == {}


def test_two_publishers_at_once(hub: Hub, tmp_path: Path, first: Path) -> None:
    """One commits; the other finds it done, or is told to try again, and then finds it done."""
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda name: publish(hub, tmp_path / name, first), "abc"))
    repository = hub.repositories[REPOSITORY]
    assert 0 in [done.returncode for done in results]
    for done in results:
        assert done.returncode == 0 or "somebody else changed the repository meanwhile" in user_error(done)
    assert len(repository.commits) == 2
    assert tree(repository.commits[repository.tags["v1.0.0"]].tree) == content(first)
    assert "nothing to do" in publish(hub, tmp_path / "d", first).stdout


def test_a_head_that_moves_meanwhile(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first)
    (readme := dict(content(first)))["README.md"] += b"a line by hand\n"
    put_release(hub, readme)
    hub.fault("commit", lambda hub: put_release(hub, readme), times=1)
    assert "somebody else changed the repository meanwhile" in user_error(publish(hub, home, first))
    repository = hub.repositories[REPOSITORY]
    assert tree(repository.commits[repository.head].tree) == readme and not repository.tags
    assert publish(hub, home, first).returncode == 0
    assert tree(repository.commits[repository.tags["v1.0.0"]].tree) == content(first)


def test_a_tag_that_somebody_else_sets_meanwhile(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put_release(hub, second)
    other = hub.repositories[REPOSITORY].head
    put_release(hub, first)
    hub.fault("tag", lambda hub: hub.repositories[REPOSITORY].tags.update({"v1.0.0": other}), times=1)
    assert "somebody else published other content as v1.0.0" in user_error(publish(hub, home, first))
    assert hub.repositories[REPOSITORY].tags == {"v1.0.0": other}


def test_what_is_published_or_somebody_elses_is_not_touched(
    hub: Hub, home: Path, first: Path, second: Path, changed: Path
) -> None:
    foreign = {"README.md": b"", "data.csv": b"a,b\n"}
    alike = {"manifest.json": b'{"name": "ms-marco-shift", "version": "draft", "digest": "0"}', "data.csv": b"a,b\n"}
    for id, files, tag, release, options, words in (
        ("org/tagged", first, "v1.0.0", changed, (), "v1.0.0 is published with other content"),
        ("org/untagged", first, None, changed, (), "holds other content as version 1.0.0 already"),  # main showed it
        ("org/newer", second, "v1.1.0", first, (), "holds version 1.1.0 already"),
        ("org/public", first, "v1.0.0", first, ("--private",), "is public already"),
        ("org/foreign", foreign, None, first, (), "holds something else (data.csv)"),
        ("org/alike", alike, None, first, (), "holds something else (data.csv)"),
        ("other/thing", first, None, first, (), FORBIDDEN),
    ):
        put_release(hub, files, tag, id)
        repository = hub.repositories[id]
        before = dict(repository.commits), repository.head, dict(repository.tags)
        assert words in user_error(publish(hub, home, release, "--repo-id", id, *options))
        assert (repository.commits, repository.head, repository.tags) == before
        assert id == "other/thing" or not WRITES & set(hub.steps())
    assert FORBIDDEN in user_error(publish(hub, home, first, "--repo-id", "other/new"))
    assert "other/new" not in hub.repositories


def test_the_same_content_in_other_bytes_is_the_published_one(
    hub: Hub, home: Path, first: Path, tmp_path: Path
) -> None:
    put_release(hub, first, "v1.0.0")
    shutil.copytree(first, folder := tmp_path / "ms-marco-shift")
    path = folder / "data/qrels/dev-00000-of-00001.parquet"
    pl.read_parquet(path).write_parquet(path, compression="uncompressed")
    done = publish(hub, home, folder)
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stdout and "same content in other bytes" in done.stdout


def test_a_hub_that_is_down_and_tokens(hub: Hub, home: Path, first: Path) -> None:
    hub.stop()
    sentence = user_error(publish(hub, home, first))
    assert f"cannot be reached at {hub.url}" in sentence and sentence.endswith("nothing was changed")
    hub.heal()
    assert "there is no token to publish with" in user_error(publish(hub, home, first, HF_TOKEN=""))
    assert TOKEN_REFUSED in user_error(publish(hub, home, first, HF_TOKEN="hf_unknown"))
    assert hub.repositories == {}
    home.mkdir(exist_ok=True)
    (home / "token").write_text(TOKEN)  # as 'hf auth login' keeps it
    assert publish(hub, home, first, HF_TOKEN="").returncode == 0


def test_private(hub: Hub, home: Path, first: Path) -> None:
    assert publish(hub, home, first, "--private").returncode == 0
    assert hub.repositories[REPOSITORY].private
    [sentence] = opens(hub, home / "reader", "v1.0.0", HF_TOKEN="")
    assert TOKEN_REFUSED in sentence


def break_table(folder: Path) -> None:
    path = folder / "data/length/test-00000-of-00001.parquet"
    frame = pl.read_parquet(path)
    frame.head(1).write_parquet(path)


def edit_card(old: str, new: str) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / "README.md"
        path.write_text(path.read_text().replace(old, new))

    return edit


def old_audit(folder: Path) -> None:
    audit = {"headline": "Nothing leaks.", "release": {"version": "1.0.0", "digest": "0" * 64}}
    (folder / "reports" / "audit.json").write_text(json.dumps(audit))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (break_table, "checks fail, first content of length/test"),
        (edit_card("configs:", "configs: ["), "its YAML is not valid"),
        (edit_card("sha256:", "sha256:0"), "its configs are not those of the release"),
        (lambda folder: (folder / "README.md").unlink(), "README.md: cannot be read"),
        (lambda folder: (folder / "manifest.json").unlink(), "not a release"),
        (lambda folder: (folder / "notes.txt").write_text("mine"), "notes.txt: is not part of the release"),
        (lambda folder: (folder / "reports" / ".env").write_text("TOKEN=1"), ".env: is not part of the release"),
        (edit_card("Version 1.0.0", "Version 2.0.0"), "is not the card of the release and its reports"),
        (old_audit, "reports/audit.json: was made from content other than the release's"),
    ],
)
def test_a_folder_unfit_to_be_published(
    change: Callable[[Path], object], words: str, first: Path, tmp_path: Path
) -> None:
    shutil.copytree(first, folder := tmp_path / "ms-marco-shift")
    change(folder)
    with pytest.raises(UserError, match=re.escape(words)):
        check_folder(folder, "v1.0.0", allow_partial=False)


def test_an_unfit_folder_is_refused_before_the_hub_is_asked(hub: Hub, home: Path, first: Path, build: Any) -> None:
    assert "its tag is v1.0.0, not v2.0.0" in user_error(publish(hub, home, first, tag="v2.0.0"))
    folder = build(replace(small_draft(), missing=[Lack("topic/train", "it cannot be obtained")]))
    assert "lacks 1 parts (first topic/train)" in user_error(publish(hub, home, folder))
    assert hub.requests == []
    assert publish(hub, home, folder, "--allow-partial").returncode == 0


def test_make_publish(hub: Hub, home: Path, first: Path, tmp_path: Path) -> None:
    """Our Makefile in a git repository of its own: only what is committed, and told in the changelog, goes out."""
    (repository := tmp_path / "clone").mkdir()
    root = Path(__file__).parents[2]
    shutil.copy(root / "Makefile", repository)
    changelog = (root / "CHANGELOG.md").read_text()
    assert changelog.count("\n### Data 1.0.0\n") == 1
    (repository / "CHANGELOG.md").write_text(changelog.replace("### Data 1.0.0", "### Data 1.0.00"))

    def make(target: str) -> Done:
        variables = [f"BIN={Path(sys.executable).parent}", f"RELEASE={first}", f"REPO={REPOSITORY}", "TAG=v1.0.0"]
        command = ["make", "-o", ".venv/.ready", target, *variables]
        own = environment_of(hub, home)
        return subprocess.run(command, cwd=repository, env=own, capture_output=True, text=True, timeout=180)

    def commit() -> None:
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "a"]):
            subprocess.run([*git, *arguments], cwd=repository, check=True)

    commit()
    for change, words in (
        (None, "CHANGELOG.md has no section '### Data 1.0.0'"),
        (changelog, "commit or put aside what has changed"),
    ):
        if change:
            (repository / "CHANGELOG.md").write_text(change)
        done = make("publish")
        assert done.returncode == 2 and words in done.stderr, (done.stdout, done.stderr)
        assert hub.requests == []
    commit()
    done = make("publish")
    assert done.returncode == 0, done.stderr
    assert list(hub.repositories[REPOSITORY].tags) == ["v1.0.0"]


def test_dry_run(hub: Hub, home: Path, first: Path, second: Path) -> None:
    done = publish(hub, home, first, "--dry-run", HF_TOKEN="")
    assert done.returncode == 0, done.stderr
    assert f"{REPOSITORY}: would create the dataset" in done.stdout and "  + manifest.json" in done.stdout
    assert hub.repositories == {}

    put_release(hub, first, "v1.0.0")
    done = publish(hub, home, second, "--dry-run", tag="v1.1.0")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {
        "  + data/topic/train-00000-of-00001.parquet",
        "  ~ data/length/test-00000-of-00001.parquet",
        "  - data/validation/validation-00000-of-00001.parquet",
        "length/test: 0 entered, 0 left, 1 moved",
        "validation/validation: left",
        "topic/train: entered",
    } <= set(lines)
    assert lines[lines.index("length/test: 0 entered, 0 left, 1 moved") + 1] == "  ~ 2"
    assert not any(".gitattributes" in line or "qrels" in line for line in lines)
    assert not {"create", *WRITES} & set(hub.steps())
    as_json = json.loads(publish(hub, home, second, "--dry-run", "--json", tag="v1.1.0").stdout)
    assert as_json["tables"][0]["moved"] == ["2"] and not as_json["done"]
    assert "nothing to do" in publish(hub, home, first, "--dry-run").stdout


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 64 KiB that is full."""
    place = tmp_path / "full"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True).returncode:
        pytest.skip("MAY NOT MOUNT: a full disk was NOT tried")
    try:
        (place / "home").mkdir()
        with pytest.raises(OSError), (place / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield place / "home"
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk(hub: Hub, full_disk: Path, first: Path, second: Path) -> None:
    put_release(hub, first, "v1.0.0")
    sentence = user_error(publish(hub, full_disk, second, tag="v1.1.0"))
    assert f"the disk is full; free some space in {full_disk}" in sentence
    assert not WRITES & set(hub.steps())
    assert "the disk is full" in opens(hub, full_disk, "v1.0.0")[0]


# Readers


def test_open_is_never_another_revision(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put_release(hub, first, "v1.0.0")
    put_release(hub, first, "v3.0.0")
    assert opens(hub, home, None) == [named(first)]
    put_release(hub, second, "v1.1.0")
    *releases, other_tag, unknown = opens(hub, home, None, "v1.0.0", "v3.0.0", "v9.9.9")
    assert releases == [named(second), named(first)]
    assert "holds version 1.0.0 under that tag" in other_tag and "no such revision" in unknown
    commit = hub.repositories[REPOSITORY].tags["v1.0.0"]

    def refuses_all_but_what_is_fixed_and_cached(**environment: str) -> None:
        # v1.1.0 was never asked for by that name
        fixed, by_commit, *sentences = opens(hub, home, "v1.0.0", commit, "v1.1.0", "main", None, **environment)
        assert fixed == by_commit == named(first)
        assert all("cannot be downloaded from the Hub" in sentence for sentence in sentences)

    refuses_all_but_what_is_fixed_and_cached(HF_HUB_OFFLINE="1")
    hub.fault("info", 500)
    refuses_all_but_what_is_fixed_and_cached()
    hub.faults.clear()
    hub.fault("info", "stall")
    assert opens(hub, home, "v1.0.0") == [named(first)]
    hub.stop()
    refuses_all_but_what_is_fixed_and_cached()


def test_a_download_that_breaks_off_and_a_damaged_cache(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first, "v1.0.0")
    hub.fault("resolve", 403, after=3)
    assert FORBIDDEN in opens(hub, home, "v1.0.0")[0]
    hub.stop()
    assert "cannot be reached" in opens(hub, home, "v1.0.0")[0]
    hub.heal()
    assert opens(hub, home, "v1.0.0") == [named(first)]

    [path] = home.rglob("data/length/test-*.parquet")
    blob = path.resolve()
    whole = blob.read_bytes()
    hub.stop()
    blob.write_bytes(whole[:-1] + b"?")
    assert "parquet" in opens(hub, home, "v1.0.0")[0]
    blob.unlink()
    assert "cannot be downloaded from the Hub" in opens(hub, home, "v1.0.0")[0]
    hub.heal()
    assert opens(hub, home, "v1.0.0") == [named(first)]
    assert blob.read_bytes() == whole


def json_info(**fields: Any) -> tuple[int, Any, dict[str, str]]:
    return 200, {"id": REPOSITORY, "sha": "0" * 40, **fields}, {}


SILENT, UNREADABLE = "did not answer in time", "answer is not readable"
ANSWERS: list[tuple[str, Any, str]] = [
    *((step, "stall", SILENT) for step in ("info", "tree", "resolve")),
    *((step, status, f"(HTTP {status})") for step in ("info", "tree", "resolve") for status in (500, 502, 503)),
    *((step, (429, b"", {"Retry-After": "100000"}), "too many requests") for step in ("info", "tree", "resolve")),
    ("tree", (429, b"", {"RateLimit": '"api";r=0;t=100000'}), "too many requests"),
    *(("info", json_info(sha=sha), UNREADABLE) for sha in (None, 5, "a" * 1_000_000, "../../x", ["0" * 40])),
    *(("info", (200, body, {}), UNREADABLE) for body in ([], "text", None, b"\xff", b"[" * 100_000, b"")),
    *(("tree", (200, body, {}), UNREADABLE) for body in ([{}], [[]], b"{", {"a": 1})),
    *(("info", (302, b"", {"Location": where}), "the Hub") for where in ("http://127.0.0.1:9/", "//", "gopher://x/")),
    ("info", lambda hub: (302, b"", {"Location": hub.url}), "the Hub"),
    ("info", (418, {"error": "\x1b[31mred\u202e\0" + "x" * 100_000}, {}), r"HTTP 418: \x1b[31mred"),
    *(
        ("info", (400, body, {}), "the Hub")
        for body in ([], {"error": [1]}, {"errors": 5}, b"\xff\xfe", b"[" * 100_000)
    ),
    ("info", (403, b"", {"X-Error-Message": "\x1b[31m", "X-HF-Warning": "\x1b[31mred"}), FORBIDDEN),
]


def test_whatever_the_hub_answers_is_one_sentence_before_long(hub: Hub, home: Path, first: Path) -> None:
    """The client's own waits between its tries are counted, not waited for."""
    for number, (step, act, _) in enumerate(ANSWERS):
        put_release(hub, first, "v1.0.0", id=f"org/case{number}")
        hub.fault(step, act(hub) if callable(act) else act, id=f"org/case{number}")
    names = json.dumps([[f"org/case{number}", "v1.0.0"] for number in range(len(ANSWERS))])
    done = client(hub, home, "-c", OPEN, names, HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert (done.returncode, done.stderr) == (0, "")
    for number, (sentence, slept, seconds) in enumerate(json.loads(done.stdout)):
        step, act, words = ANSWERS[number]
        answer = f"{number}: {step}, {str(act)[:100]}: {sentence}"
        assert sentence.startswith(f"open: org/case{number} at v1.0.0: cannot be downloaded from the Hub: "), answer
        assert words in sentence and sentence.removesuffix("\n").isprintable() and len(sentence) < 2_100, answer
        assert slept < 60 and seconds < 60, answer


def test_only_what_the_manifest_names_is_downloaded(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, {**content(first), "data/more.parquet": bytes(1_000_000), "a/b.py": b""}, "v1.0.0")
    put_release(hub, {"README.md": b""})
    release, empty = opens(hub, home, "v1.0.0", None)
    assert release == named(first)
    assert "not a release, it has no manifest.json" in empty
    tables = {table["path"] for table in json.loads((first / "manifest.json").read_text())["tables"]}
    downloads = {path.split("/resolve/")[1].partition("/")[2] for step, path, _ in hub.requests if step == "resolve"}
    assert downloads == {"manifest.json", *tables}


def test_three_readers_of_one_cache(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first, "v1.0.0")
    with ThreadPoolExecutor(3) as pool:
        readers = list(pool.map(lambda _: opens(hub, home, "v1.0.0"), range(3)))
    assert readers == [[named(first)]] * 3
    [snapshot] = home.glob("hub/datasets--org--ms-marco-shift/snapshots/*")
    cached = content(snapshot)
    assert cached == {name: data for name, data in content(first).items() if name in cached} and len(cached) > 3
    assert not list(home.rglob("*.incomplete"))


def corrupt(hub: Hub) -> None:
    for name, xorb in hub.store.xorbs.items():
        middle = len(xorb.packed) // 2
        packed = xorb.packed[:middle] + bytes(16) + xorb.packed[middle + 16 :]
        hub.store.xorbs[name] = replace(xorb, packed=packed)


def test_a_xet_download_that_fails(hub: Hub, tmp_path: Path, second: Path) -> None:
    assert publish(hub, tmp_path / "publisher", second, tag="v1.1.0").returncode == 0
    whole = dict(hub.store.xorbs)
    for step, act, words in (
        ("reconstruction", 500, FAILED),
        ("xorb_data", "reset", f"cannot be downloaded from the Hub: {BROKE}"),
        ("xorb_data", "kill", f"cannot be downloaded from the Hub: {BROKE}"),
        ("xorb_data", corrupt, "parquet"),  # hf_xet does not notice; the manifest does
    ):
        home = tmp_path / f"{step} {act}"
        hub.fault(step, act)
        assert words in opens(hub, home, "v1.1.0")[0], (step, act)
        hub.heal()
        hub.store.xorbs = dict(whole)
        home = tmp_path / "another" if act is corrupt else home
        assert opens(hub, home, "v1.1.0") == [named(second)], (step, act)


def test_ir_datasets_from_the_hub(hub: Hub, home: Path, first: Path, second: Path) -> None:
    """By a call for any revision, and by the environment variable alone."""
    put_release(hub, first, "v1.0.0")
    put_release(hub, second, "v1.1.0")
    own = {"IR_DATASETS_HOME": str(home / "irds")}
    by_call = client(hub, home, "-c", IR_DATASETS, REPOSITORY, "v1.0.0", **own)
    by_variable = client(hub, home, "-c", IR_DATASETS, **own, MS_MARCO_SHIFT_RELEASE=REPOSITORY)
    for done, folder in ((by_call, first), (by_variable, second)):
        assert done.returncode == 0, done.stderr
        read, release = json.loads(done.stdout), open_release(folder)
        rows = release.table("length", "test").filter(pl.col("cluster") == "short")
        assert list(map(tuple, read["queries"])) == rows.select("query_id", "text").rows()
        judged = release.qrels("dev").filter(pl.col("query_id").is_in(rows["query_id"].implode()))
        assert list(map(tuple, read["qrels"])) == judged.rows()
        assert list(map(tuple, read["docs"])) == release.table("passages", "passages").rows()


def test_load_dataset_sees_the_new_version(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put_release(hub, first, "v1.0.0")
    old = columns_of(first, "v1.0.0", "length")
    assert load(hub, home, "v1.0.0", "main", config="length") == old | columns_of(first, "main", "length")
    put_release(hub, second, "v1.1.0")
    assert load(hub, home, "main", "v1.0.0", config="length") == columns_of(second, "main", "length") | old


def test_the_cards_recipe_is_never_another_version(hub: Hub, home: Path, first: Path, second: Path) -> None:
    """Plain ``load_dataset`` serves any cached version where the Hub is down; so the card says how to be sure."""

    def recipe(folder: Path) -> Done:
        blocks = (folder / "README.md").read_text().split("```")
        (code,) = (block.removeprefix("python") for block in blocks if "snapshot_download(" in block)
        return client(hub, home, "-c", code.replace("ORG/", "org/") + "print(rows['test']['text'][:])")

    put_release(hub, first, "v1.0.0")
    assert "how do cats" in recipe(first).stdout
    put_release(hub, second, "v1.1.0")
    hub.stop()
    down = recipe(second)
    assert down.returncode != 0 and down.stdout == ""
    hub.heal()
    assert "how do dogs" in recipe(second).stdout
    hub.stop()
    assert "how do dogs" in recipe(second).stdout


def test_a_publish_killed_at_any_moment_ends_as_one_that_was_not(
    first: Path, second: Path, hub: Hub, home: Path
) -> None:
    """One in mid-upload, KILLS or three at random; after each, the version published before is untouched."""
    assert publish(hub, home, first).returncode == 0
    begun = time.perf_counter()
    assert publish(hub, home, first).returncode == 0, "which finds nothing to do"
    seconds, killed = time.perf_counter() - begun, 0
    repository = hub.repositories[REPOSITORY]
    before = content(first)

    def start(**environment: str) -> clients.Running:
        arguments = ["-m", "builder", "publish", str(second), "--repo-id", REPOSITORY, "--tag", "v1.1.0"]
        return clients.Running(arguments, {**environment_of(hub, home), **environment}, home.parent)

    hub.fault("put", "stall")
    uploading = start(**NO_XET)
    deadline = time.monotonic() + 60
    while "put" not in hub.steps():
        assert time.monotonic() < deadline and not uploading.ended()
        time.sleep(0.05)
    assert uploading.kill().returncode != 0
    assert tree(repository.commits[repository.head].tree) == before and list(repository.tags) == ["v1.0.0"]
    hub.heal()
    draw = random.Random(0).uniform  # the earliest first: a publish that ends leaves the next nothing to do
    for moment in sorted(draw(0.1, 1.5) * seconds for _ in range(int(os.environ.get("KILLS", "3")))):
        process = start()
        time.sleep(moment)
        killed += process.kill().returncode != 0
        assert tree(repository.commits[repository.tags["v1.0.0"]].tree) == before
    done = publish(hub, home, second, tag="v1.1.0")
    assert done.returncode == 0, done.stderr
    assert killed
    assert tree(repository.commits[repository.tags["v1.1.0"]].tree) == content(second)
