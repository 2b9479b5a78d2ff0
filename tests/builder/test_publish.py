"""Publishing, and loading what was published, by unmodified clients, each in its own process and ``HF_HOME``.

Each is a fork of :mod:`clients`' server, which spares it most of its imports.

The Hub is :mod:`hub_server` on the loopback interface: nothing leaves this machine.
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import clients
import polars as pl
import pytest
from drafts import BY_HAND, small_draft
from hub_server import GITATTRIBUTES, TOKEN, Blob, Hub, Repository, Tree

from builder import card, reports
from builder import release as releases
from builder.release import Draft, Table
from eval_kit.documents import Lack
from eval_kit.release import open_release

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


def put_release(hub: Hub, folder: Path, tag: str | None = None, id: str = REPOSITORY) -> None:
    """Place a release in the Hub's state, without a client."""
    repository = hub.repositories.setdefault(id, Repository())
    if not repository.head:
        repository.commit("initial commit", {".gitattributes": Blob(GITATTRIBUTES, False)})
    blobs = {name: Blob(data, name.endswith(".parquet")) for name, data in content(folder).items()}
    oid = repository.commit("by hand", {".gitattributes": Blob(GITATTRIBUTES, False), **blobs}).oid
    if tag:
        repository.tags[tag] = oid


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
    """Version 1.1.0: one table gone, one changed, one new; its card tells so."""
    changed = small_draft(
        texts=["what is  a cat", "how do dogs say and bark", "naïve café ☕ prices", "d\\ne"], version="1.1.0"
    )
    random = pl.DataFrame({"query_id": [str(i) for i in range(20_000)]}).with_columns(text=pl.col("query_id").hash(1))
    extra = Table("topic", "train", random.with_columns(pl.col("text").cast(pl.String)), BY_HAND)
    folder = build(replace(changed, tables=[*changed.tables, extra]))
    reports.add_history(open_release(folder), open_release(first))
    card.write(folder)
    return folder


LOAD = """
import json, sys
from datasets import get_dataset_config_names, load_dataset
import polars as pl
from eval_kit.documents import Column
from eval_kit.files.digests import table_digest

repository, revision, columns = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
KINDS = {"int64": pl.Int64, "label": pl.Int64, "list<string>": pl.List(pl.String)}
found, sizes = {}, {}

def digest(config, split, rows, features):
    described = columns[config + "/" + split]
    frame = pl.DataFrame(rows, schema={c["name"]: KINDS.get(c["type"], pl.String)
                                       for c in described})
    for c in described:
        if c["type"] == "label":
            assert features[c["name"]].names == c["labels"]
            frame = frame.with_columns(pl.col(c["name"]).replace_strict(dict(enumerate(c["labels"])),
                                       return_dtype=pl.String, default=None))
    return table_digest(frame, [Column(**c) for c in described])

for config in get_dataset_config_names(repository, revision=revision):
    loaded = load_dataset(repository, config, revision=revision)
    streams = load_dataset(repository, config, revision=revision, streaming=True)
    assert list(loaded) == list(streams)
    sizes[config] = {split: len(rows) for split, rows in loaded.items()}
    for split, rows in loaded.items():
        one = digest(config, split, rows.to_list(), rows.features)
        other = digest(config, split, list(streams[split]), streams[split].features)
        assert one == other, (config, split)
        found[config + "/" + split] = one
default = "topic" if "topic" in sizes else next(iter(sizes))
assert {split: len(rows) for split, rows in load_dataset(repository, revision=revision).items()} == sizes[default]
print(json.dumps(found))
"""
SNAPSHOT = """
import sys
from huggingface_hub import snapshot_download
print(snapshot_download(sys.argv[1], repo_type="dataset", revision=sys.argv[2]))
"""
OPEN = """
import json, sys
from eval_kit.errors import reported
with reported("open"):
    from eval_kit.release import open_release
    release = open_release(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    tables = {f"{c}/{s}": release.table(c, s).height for c, splits in release.configs.items() for s in splits}
    print(json.dumps({"version": release.version, "digest": release.digest, "tables": tables}))
"""
IR_DATASETS = """
import json, sys, warnings
warnings.filterwarnings("ignore", "no release at")
import ir_datasets, eval_kit.irds
names = eval_kit.irds.register(sys.argv[1], sys.argv[2]) if len(sys.argv) > 2 else list(ir_datasets.registry)
one = ir_datasets.load(next(name for name in names if name.endswith("shift/length/short")))
print(json.dumps({"queries": [tuple(query) for query in one.queries_iter()],
                  "qrels": [tuple(row)[:3] for row in one.qrels_iter()],
                  "docs": [tuple(doc) for doc in one.docs_iter()]}))
"""
LOAD_TEXTS = """
import json, sys
from datasets import load_dataset
print(json.dumps(load_dataset(sys.argv[1], "length", split="test", revision=sys.argv[2])["text"][:]))
"""


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_round_trip(transfer: str, hub: Hub, tmp_path: Path, build: Callable[[Draft], Path]) -> None:
    draft = small_draft()
    negatives = pl.DataFrame({"query_id": ["1", "2", "10"], "passage_ids": [["70", "8"], [], ["9"]]})
    extra = [Table("negatives", "train", negatives, BY_HAND), Table("qrels", "train", draft.tables[1].frame, BY_HAND)]
    folder = build(replace(draft, tables=[*draft.tables, *extra]))
    (folder / "reports/similarity.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    card.write(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    own = {} if transfer == "xet" else NO_XET
    hub.part_bytes = 100 if transfer == "parts" else None
    done = publish(hub, tmp_path / "publisher", folder, **own)
    assert done.returncode == 0, done.stderr
    assert "checksums agree" in done.stdout and "/s)" in done.stdout and done.stderr.strip() == ""
    repository = hub.repositories[REPOSITORY]
    assert tree(repository.commits[repository.head].tree) == content(folder)
    assert repository.tags == {"v1.0.0": repository.head} and len(repository.commits) == 2

    seen, commits = len(hub.requests), dict(repository.commits)
    again = publish(hub, tmp_path / "publisher", folder, **own)
    assert again.returncode == 0 and "nothing to do" in again.stdout
    assert not WRITES & set(hub.steps()[seen:]) and repository.commits == commits

    columns = {f"{table['config']}/{table['split']}": table["columns"] for table in manifest["tables"]}
    local = tmp_path / "downloaded"
    hf = Path(sys.executable).with_name("hf")
    commands: dict[str, tuple[object, ...]] = {
        "load": ("-c", LOAD, REPOSITORY, "v1.0.0", json.dumps(columns)),
        "snapshot": ("-c", SNAPSHOT, REPOSITORY, "v1.0.0"),
        "hf": (hf, "download", REPOSITORY, "--repo-type", "dataset", "--revision", "v1.0.0", "--local-dir", local),
        "open": ("-c", OPEN, REPOSITORY, "v1.0.0"),
        "open main": ("-c", OPEN, REPOSITORY),
        "open commit": ("-c", OPEN, REPOSITORY, repository.head),
    }
    if transfer != "xet":  # over plain HTTP: how it came there makes no difference to these readers
        del commands["load"], commands["hf"]
    with ThreadPoolExecutor(2) as pool:
        jobs = {name: pool.submit(client, hub, tmp_path / name, *command) for name, command in commands.items()}
    out = {name: job.result() for name, job in jobs.items()}
    assert {name: one.stderr for name, one in out.items() if one.returncode} == {}
    digests = {f"{table['config']}/{table['split']}": table["digest"] for table in manifest["tables"]}
    if transfer == "xet":
        assert json.loads(out["load"].stdout.splitlines()[-1]) == digests
        shutil.rmtree(local / ".cache")
        assert content(local) == {**content(folder), ".gitattributes": GITATTRIBUTES}
    snapshot = content(Path(out["snapshot"].stdout.strip().splitlines()[-1]))
    assert snapshot == {**content(folder), ".gitattributes": GITATTRIBUTES}
    for name in ("open", "open main", "open commit"):
        opened = json.loads(out[name].stdout)
        assert (opened["version"], opened["digest"]) == ("1.0.0", manifest["digest"])
    assert not any(TOKEN in one.stdout + one.stderr for one in [done, again, *out.values()])
    steps = set().union(*TRANSFERS.values()) & set(hub.steps())
    assert steps == TRANSFERS[transfer]


# Every fault: the transfer, the step, what happens there, which words the sentence must have (none: the client
# gets over it by itself). A publish of 1.1.0 over 1.0.0 meets it; then it is gone and the same command runs again.
BROKE, REFUSED, FAILED = "the connection to the Hub broke", "cannot be reached", "the Hub failed (HTTP 500)"
TOKEN_REFUSED, FORBIDDEN, NOT_THERE = "log in with 'hf auth login'", "the token may not do that", "no such repository"


@dataclass(frozen=True)
class Case:
    transfer: str
    step: str
    act: int | str
    words: str | None
    times: int = 1_000
    after: int = 0

    def __str__(self) -> str:
        return "-".join(map(str, (self.transfer, self.step, self.act, self.times, self.after)))


CASES = [
    *(Case("lfs", "create", act, words) for act, words in ((500, FAILED), ("reset", BROKE), ("lost", BROKE))),
    Case("lfs", "create", "kill", BROKE),
    *(Case("lfs", "refs", act, words) for act, words in ((500, FAILED), ("reset", BROKE), (404, NOT_THERE))),
    Case("lfs", "tree", 500, FAILED),
    Case("lfs", "tree", "kill", REFUSED),
    *(Case("lfs", "validate_yaml", act, words) for act, words in ((500, FAILED), ("reset", BROKE))),
    *(Case("lfs", "preupload", act, words) for act, words in ((401, TOKEN_REFUSED), (403, FORBIDDEN))),
    *(Case("lfs", "preupload", act, words) for act, words in ((404, NOT_THERE), (500, FAILED), ("reset", BROKE))),
    Case("lfs", "preupload", "kill", REFUSED),
    Case("lfs", "preupload", "lost", None, times=1),
    *(Case("lfs", "lfs_batch", act, words) for act, words in ((403, FORBIDDEN), (500, FAILED), ("reset", BROKE))),
    Case("lfs", "lfs_batch", "kill", REFUSED),
    *(Case("lfs", "put", act, words) for act, words in ((403, FORBIDDEN), (500, FAILED), ("reset", BROKE))),
    Case("lfs", "put", "kill", REFUSED),
    Case("lfs", "put", "kill", REFUSED, after=1),
    *(Case("lfs", "put", act, None, times=1, after=1) for act in (500, "reset", "lost")),
    *(Case("lfs", "commit", act, words) for act, words in ((401, TOKEN_REFUSED), (403, FORBIDDEN), (404, NOT_THERE))),
    *(Case("lfs", "commit", act, words) for act, words in ((409, "a conflict with"), (412, "somebody else changed"))),
    *(Case("lfs", "commit", act, words) for act, words in ((500, FAILED), ("reset", BROKE), ("lost", BROKE))),
    *(Case("lfs", "commit", act, words) for act, words in (("kill", BROKE), ("stall", "did not answer in time"))),
    *(Case("lfs", "tree", act, words, after=1) for act, words in ((500, FAILED), ("reset", BROKE), ("kill", REFUSED))),
    *(Case("lfs", "tag", act, words) for act, words in ((401, TOKEN_REFUSED), (403, FORBIDDEN), (500, FAILED))),
    *(Case("lfs", "tag", act, words) for act, words in (("reset", BROKE), ("lost", BROKE), ("kill", BROKE))),
    *(Case("parts", step, "kill", REFUSED, after=after) for step, after in (("part", 1), ("complete", 0))),
    *(Case("parts", step, "lost", None, times=1, after=after) for step, after in (("part", 1), ("complete", 0))),
    *(Case("xet", step, 500, "(HTTP 500)") for step in ("xet_token", "xorb", "shard")),
    *(Case("xet", step, 401, TOKEN_REFUSED) for step in ("xet_token", "xorb", "shard")),
    *(Case("xet", step, act, BROKE) for step in ("xet_token", "xorb", "shard") for act in ("reset", "lost", "kill")),
    *(Case("xet", "commit", act, BROKE) for act in ("lost", "kill")),
]


@dataclass(frozen=True)
class Seen:
    """What stood on the Hub after the fault, and after the same command again."""

    failed: Done
    head: dict[str, bytes]
    tags: dict[str, dict[str, bytes]]
    again: Done
    hub: Hub


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory, first: Path, second: Path) -> dict[Case, Seen]:
    """All cases at once, since the clients mostly wait between their retries."""

    def meet(case: Case) -> Seen:
        hub, home = Hub(), tmp_path_factory.mktemp("fault") / "home"
        put_release(hub, first, "v1.0.0")
        hub.fault(case.step, case.act, case.times, case.after)
        hub.part_bytes = 100_000 if case.transfer == "parts" else None
        own = {} if case.transfer == "xet" else NO_XET
        options = ["--timeout", 3] if case.act == "stall" else []
        failed = publish(hub, home, second, *options, tag="v1.1.0", **own)
        repository = hub.repositories[REPOSITORY]
        head = tree(repository.commits[repository.head].tree)
        tags = {name: tree(repository.commits[oid].tree) for name, oid in repository.tags.items()}
        hub.heal()
        again = publish(hub, home, second, tag="v1.1.0", **own)
        hub.stop()
        return Seen(failed, head, tags, again, hub)

    with ThreadPoolExecutor(12) as pool:
        return dict(zip(CASES, pool.map(meet, CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fault_then_the_same_again(case: Case, faults: dict[Case, Seen], first: Path, second: Path) -> None:
    seen, old, new = faults[case], content(first), content(second)
    if case.words is None:
        assert seen.failed.returncode == 0, seen.failed.stderr
    else:
        sentence = user_error(seen.failed)
        assert case.words in sentence and sentence.startswith(f"builder: {REPOSITORY}: ")
    assert seen.head in (old, new)
    assert seen.tags["v1.0.0"] == old and seen.tags.get("v1.1.0", new) == new

    assert seen.again.returncode == 0, seen.again.stderr
    repository = seen.hub.repositories[REPOSITORY]
    assert [tree(commit.tree) for commit in repository.commits.values()] == [{}, old, new]
    assert repository.commits[repository.head].parent == repository.tags["v1.0.0"]
    assert repository.tags["v1.1.0"] == repository.head
    assert TOKEN not in seen.failed.stdout + seen.failed.stderr + seen.again.stdout + seen.again.stderr
    assert "signature" not in seen.failed.stderr  # of an upload address


def test_a_publisher_that_is_killed_in_mid_upload(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put_release(hub, first, "v1.0.0")
    hub.fault("put", "stall")
    command = [sys.executable, "-m", "builder", "publish", second, "--repo-id", REPOSITORY, "--tag", "v1.1.0"]
    process = subprocess.Popen(list(map(str, command)), env={**environment_of(hub, home), **NO_XET}, cwd=home.parent)
    deadline = time.monotonic() + 60
    while "put" not in hub.steps():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    repository = hub.repositories[REPOSITORY]
    assert tree(repository.commits[repository.head].tree) == content(first) and list(repository.tags) == ["v1.0.0"]
    hub.heal()
    assert publish(hub, home, second, tag="v1.1.0").returncode == 0
    assert tree(repository.commits[repository.tags["v1.1.0"]].tree) == content(second)


def test_two_publishers_at_once(hub: Hub, tmp_path: Path, first: Path) -> None:
    """One commits; the other finds it done, or is told to try again, and then finds it done."""
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda name: publish(hub, tmp_path / name, first), "abc"))
    repository = hub.repositories[REPOSITORY]
    assert {one.returncode for one in results} <= {0, 2} and 0 in {one.returncode for one in results}
    for one in results:
        assert one.returncode == 0 or "somebody else changed the repository meanwhile" in user_error(one)
    assert len(repository.commits) == 2
    assert tree(repository.commits[repository.tags["v1.0.0"]].tree) == content(first)
    assert "nothing to do" in publish(hub, tmp_path / "d", first).stdout


def test_a_server_that_is_down(hub: Hub, home: Path, first: Path) -> None:
    hub.stop()
    sentence = user_error(publish(hub, home, first))
    assert f"cannot be reached at {hub.url}" in sentence and sentence.endswith("nothing was changed")


def test_a_head_that_moves_meanwhile(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first)
    (readme := dict(content(first)))["README.md"] += b"a line by hand\n"

    def edit(hub: Hub) -> None:
        repository = hub.repositories[REPOSITORY]
        repository.commit("edit", {name: Blob(data, name.endswith(".parquet")) for name, data in readme.items()})

    edit(hub)
    hub.fault("commit", edit, times=1)
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


def test_a_tag_of_other_content_is_never_moved(hub: Hub, home: Path, first: Path, build: Any) -> None:
    put_release(hub, first, "v1.0.0")
    before = dict(hub.repositories[REPOSITORY].commits)
    changed = build(small_draft(texts=["what is a dog", "b", "c d e", "f"], clusters=["short"] * 4, names=("short",)))
    assert "v1.0.0 is published with other content" in user_error(publish(hub, home, changed))
    assert hub.repositories[REPOSITORY].commits == before and not WRITES & set(hub.steps())


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


def test_somebody_elses_repository(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first, id="other/thing")
    sentence = user_error(publish(hub, home, first, "--repo-id", "other/thing"))
    assert FORBIDDEN in sentence
    assert "commit" not in hub.steps() and not hub.repositories["other/thing"].tags
    assert FORBIDDEN in user_error(publish(hub, home, first, "--repo-id", "other/new"))


def test_tokens(hub: Hub, home: Path, first: Path) -> None:
    assert "there is no token to publish with" in user_error(publish(hub, home, first, HF_TOKEN=""))
    assert TOKEN_REFUSED in user_error(publish(hub, home, first, HF_TOKEN="hf_unknown"))
    assert hub.repositories == {}
    home.mkdir(exist_ok=True)
    (home / "token").write_text(TOKEN)  # as 'hf auth login' keeps it
    assert publish(hub, home, first, HF_TOKEN="").returncode == 0


def test_other_peoples_files_are_not_removed(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first)
    repository = hub.repositories[REPOSITORY]
    before = repository.commit("not ours", {"README.md": Blob(b"", False), "data.csv": Blob(b"a,b\n", False)})
    assert "holds something else (data.csv)" in user_error(publish(hub, home, first))
    assert repository.head == before.oid


def test_an_older_version_does_not_replace_a_newer(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put_release(hub, second, "v1.1.0")
    assert "holds version 1.1.0 already" in user_error(publish(hub, home, first))


def test_a_version_is_published_once(hub: Hub, home: Path, first: Path, build: Any) -> None:
    """Even if its tag is gone: main has shown it to readers."""
    put_release(hub, first)
    changed = build(small_draft(texts=["what is a dog", "b", "c d e", "f"], clusters=["short"] * 4, names=("short",)))
    assert "holds other content as version 1.0.0 already" in user_error(publish(hub, home, changed))
    assert not WRITES & set(hub.steps())


def test_an_erratum_tells_what_changed(hub: Hub, home: Path, first: Path, second: Path, tmp_path: Path) -> None:
    put_release(hub, first, "v1.0.0")
    shutil.copytree(second, folder := tmp_path / "ms-marco-shift")
    (folder / reports.HISTORY).unlink()
    card.write(folder)
    for options in ([], ["--dry-run"]):
        sentence = user_error(publish(hub, home, folder, *options, tag="v1.1.0"))
        assert "does not say what changed since version 1.0.0" in sentence
    assert not WRITES & set(hub.steps())
    advised = sentence.split("run 'python ")[1].split("'")[0].split()
    assert f"--previous {REPOSITORY}@v1.0.0" in sentence
    done = client(hub, home, *advised)
    assert done.returncode == 0, done.stderr
    assert (folder / "README.md").read_bytes() == (second / "README.md").read_bytes()
    assert publish(hub, home, folder, tag="v1.1.0").returncode == 0
    assert tree(hub.repositories[REPOSITORY].at("v1.1.0").tree) == content(folder)  # type: ignore[union-attr]


def test_private(hub: Hub, home: Path, first: Path) -> None:
    assert publish(hub, home, first, "--private").returncode == 0
    assert hub.repositories[REPOSITORY].private
    put_release(hub, first, id="org/public")
    assert "is public already" in user_error(publish(hub, home, first, "--private", "--repo-id", "org/public"))
    anonymous = client(hub, home / "reader", "-c", OPEN, REPOSITORY, "v1.0.0", HF_TOKEN="")
    assert anonymous.returncode == 2 and TOKEN_REFUSED in anonymous.stderr


def break_table(folder: Path) -> None:
    path = folder / "data/length/test-00000-of-00001.parquet"
    frame = pl.read_parquet(path)
    frame.head(1).write_parquet(path)


def break_yaml(folder: Path) -> None:
    card = folder / "README.md"
    card.write_text(card.read_text().replace("configs:", "configs: ["))


def stale_card(folder: Path) -> None:
    card = folder / "README.md"
    card.write_text(card.read_text().replace("sha256:", "sha256:0"))


def stranger(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def by_hand(folder: Path) -> None:
    card = folder / "README.md"
    card.write_text(card.read_text().replace("Version 1.0.0", "Version 2.0.0"))


def old_audit(folder: Path) -> None:
    audit = {"headline": "Nothing leaks.", "release": {"version": "1.0.0", "digest": "0" * 64}}
    (folder / "reports" / "audit.json").write_text(json.dumps(audit))


def hidden(folder: Path) -> None:
    (folder / "reports" / ".env").write_text("TOKEN=1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (break_table, "checks fail, first content of length/test"),
        (break_yaml, "its YAML is not valid"),
        (stale_card, "its configs are not those of the release"),
        (lambda folder: (folder / "README.md").unlink(), "README.md: cannot be read"),
        (lambda folder: (folder / "manifest.json").unlink(), "not a release"),
        (stranger, "notes.txt: is not part of the release"),
        (hidden, ".env: is not part of the release"),
        (by_hand, "is not the card of the release and its reports"),
        (old_audit, "reports/audit.json: was made from content other than the release's"),
    ],
)
def test_a_folder_unfit_to_be_published(
    change: Callable[[Path], object], words: str, hub: Hub, home: Path, first: Path, tmp_path: Path
) -> None:
    shutil.copytree(first, folder := tmp_path / "ms-marco-shift")
    change(folder)
    assert words in user_error(publish(hub, home, folder))
    assert not {"create", *WRITES} & set(hub.steps())


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


def test_the_tag_is_the_version(hub: Hub, home: Path, first: Path) -> None:
    assert "its tag is v1.0.0, not v2.0.0" in user_error(publish(hub, home, first, tag="v2.0.0"))
    assert hub.requests == []


def test_a_partial_release_only_on_demand(hub: Hub, home: Path, build: Any) -> None:
    folder = build(replace(small_draft(), missing=[Lack("topic/train", "it cannot be obtained")]))
    assert "lacks 1 parts (first topic/train)" in user_error(publish(hub, home, folder))
    assert publish(hub, home, folder, "--allow-partial").returncode == 0


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


def test_a_full_disk(hub: Hub, full_disk: Path, home: Path, first: Path, second: Path) -> None:
    put_release(hub, first, "v1.0.0")
    for options in ([], ["--dry-run"]):
        sentence = user_error(publish(hub, full_disk, second, *options, tag="v1.1.0"))
        assert f"the disk is full; free some space in {full_disk}" in sentence
    assert not WRITES & set(hub.steps())
    reader = client(hub, full_disk, "-c", OPEN, REPOSITORY, "v1.0.0")
    assert reader.returncode == 2 and "the disk is full" in reader.stderr
    assert publish(hub, home, second, tag="v1.1.0").returncode == 0


# Readers


def opened(done: Done) -> tuple[str, str]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["version"], found["digest"]


def not_opened(done: Done) -> str:
    assert done.returncode == 2 and done.stdout == "", (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith((f"open: {REPOSITORY}", "open: /"))
    return line


def test_open_is_never_another_revision(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put_release(hub, first, "v1.0.0")
    old = json.loads((first / "manifest.json").read_text())
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY)) == ("1.0.0", old["digest"])
    put_release(hub, second, "v1.1.0")
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY))[0] == "1.1.0"
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0")) == ("1.0.0", old["digest"])
    assert "no such revision" in not_opened(client(hub, home, "-c", OPEN, REPOSITORY, "v9.9.9"))
    commit = hub.repositories[REPOSITORY].tags["v1.0.0"]

    def refuses_all_but_what_is_fixed_and_cached(**environment: str) -> None:
        assert opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0", **environment)) == ("1.0.0", old["digest"])
        assert opened(client(hub, home, "-c", OPEN, REPOSITORY, commit, **environment)) == ("1.0.0", old["digest"])
        for revision in (["v1.1.0"], ["main"], []):  # v1.1.0 was never asked for by that name
            line = not_opened(client(hub, home, "-c", OPEN, REPOSITORY, *revision, **environment))
            assert "cannot be downloaded from the Hub" in line

    refuses_all_but_what_is_fixed_and_cached(HF_HUB_OFFLINE="1")
    hub.fault("info", 500)
    refuses_all_but_what_is_fixed_and_cached()
    hub.faults.clear()
    hub.fault("info", "stall")
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0")) == ("1.0.0", old["digest"])
    hub.stop()
    refuses_all_but_what_is_fixed_and_cached()


def test_a_tag_that_stands_for_another_version(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first, "v3.0.0")
    line = not_opened(client(hub, home, "-c", OPEN, REPOSITORY, "v3.0.0"))
    assert "holds version 1.0.0 under that tag" in line


def test_a_damaged_cache(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first, "v1.0.0")
    opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"))
    (path,) = home.rglob("data/length/test-*.parquet")
    blob = path.resolve()
    whole = blob.read_bytes()
    hub.stop()
    blob.write_bytes(whole[:-1] + b"?")
    assert "parquet" in not_opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"))
    blob.unlink()
    assert "cannot be downloaded from the Hub" in not_opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"))
    hub.heal()
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"))[0] == "1.0.0"
    assert hashlib.sha256(blob.read_bytes()).digest() == hashlib.sha256(whole).digest()


def test_a_download_that_breaks_off(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first, "v1.0.0")
    hub.fault("resolve", 403, after=3)
    assert FORBIDDEN in not_opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"))
    hub.stop()
    assert "cannot be reached" in not_opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"))
    hub.heal()
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"))[0] == "1.0.0"


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


OPEN_EACH = """
import contextlib, io, json, sys, time
from huggingface_hub.utils import _http
from eval_kit.errors import reported
from eval_kit.release import open_release

slept = []
_http.time = type("time", (), {"sleep": slept.append, "monotonic": time.monotonic})
outcomes = []
for number in range(int(sys.argv[1])):
    slept.clear()
    begun = time.monotonic()
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.suppress(SystemExit), reported("open"):
        open_release(f"org/case{number}", "v1.0.0")
        print("opened", number)
    outcomes.append([err.getvalue(), sum(slept), time.monotonic() - begun])
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, first: Path) -> list[tuple[str, float, float]]:
    """What opening a release says to each answer, how long its client would sleep, and how long it took without."""
    hub, home = Hub(), tmp_path_factory.mktemp("answers") / "home"
    for number, (step, act, _) in enumerate(ANSWERS):
        put_release(hub, first, "v1.0.0", id=f"org/case{number}")
        hub.fault(step, act(hub) if callable(act) else act, id=f"org/case{number}")
    done = client(hub, home, "-c", OPEN_EACH, len(ANSWERS), HF_HUB_DOWNLOAD_TIMEOUT="1")
    hub.stop()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return list(map(tuple, json.loads(done.stdout)))


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_whatever_the_hub_answers_is_one_sentence_before_long(
    number: int, answers: list[tuple[str, float, float]]
) -> None:
    said, slept, waited = answers[number]
    words = ANSWERS[number][2]
    assert said.startswith(f"open: org/case{number} at v1.0.0: cannot be downloaded from the Hub: ")
    assert words in said and said.removesuffix("\n").isprintable() and len(said) < 2_100
    assert slept < 60 and waited < 60


def test_only_what_the_manifest_names_is_downloaded(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first)
    repository = hub.repositories[REPOSITORY]
    files = repository.commits[repository.head].tree
    repository.commit("more", {**files, "data/more.parquet": Blob(bytes(1_000_000), True), "a/b.py": Blob(b"", False)})
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY))[0] == "1.0.0"
    named = {table["path"] for table in json.loads((first / "manifest.json").read_text())["tables"]}
    downloaded = {path.split("/resolve/")[1].partition("/")[2] for step, path, _ in hub.requests if step == "resolve"}
    assert downloaded == {"manifest.json", *named}
    repository.commit("none", {"README.md": Blob(b"", False)})
    assert "not a release, it has no manifest.json" in not_opened(client(hub, home, "-c", OPEN, REPOSITORY))


def test_three_readers_of_one_cache(hub: Hub, home: Path, first: Path) -> None:
    put_release(hub, first, "v1.0.0")
    with ThreadPoolExecutor(3) as pool:
        readers = list(pool.map(lambda _: client(hub, home, "-c", OPEN, REPOSITORY, "v1.0.0"), range(3)))
    digest = json.loads((first / "manifest.json").read_text())["digest"]
    assert list(map(opened, readers)) == [("1.0.0", digest)] * 3
    [snapshot] = home.glob("hub/datasets--org--ms-marco-shift/snapshots/*")
    kept = content(snapshot)
    assert kept == {name: data for name, data in content(first).items() if name in kept} and len(kept) > 3
    assert not list(home.rglob("*.incomplete"))


def corrupt(hub: Hub) -> None:
    for name, xorb in hub.store.xorbs.items():
        middle = len(xorb.packed) // 2
        packed = xorb.packed[:middle] + bytes(16) + xorb.packed[middle + 16 :]
        hub.store.xorbs[name] = replace(xorb, packed=packed)


@pytest.mark.parametrize(
    ("step", "act", "words"),
    [
        ("reconstruction", 500, FAILED),
        ("xorb_data", "reset", f"cannot be downloaded from the Hub: {BROKE}"),
        ("xorb_data", "kill", f"cannot be downloaded from the Hub: {BROKE}"),
        ("xorb_data", corrupt, "parquet"),  # hf_xet does not notice; the manifest does
    ],
)
def test_a_xet_download_that_fails(step: str, act: Any, words: str, hub: Hub, tmp_path: Path, second: Path) -> None:
    assert publish(hub, tmp_path / "publisher", second, tag="v1.1.0").returncode == 0
    whole = dict(hub.store.xorbs)
    hub.fault(step, act)
    assert words in not_opened(client(hub, tmp_path / "reader", "-c", OPEN, REPOSITORY, "v1.1.0"))
    hub.heal()
    hub.store.xorbs = whole
    home = tmp_path / ("another" if act is corrupt else "reader")
    assert opened(client(hub, home, "-c", OPEN, REPOSITORY, "v1.1.0"))[0] == "1.1.0"


def test_ir_datasets_from_the_hub(hub: Hub, home: Path, first: Path, second: Path) -> None:
    """By a call for any revision, and by the environment variable alone."""
    put_release(hub, first, "v1.0.0")
    put_release(hub, second, "v1.1.0")
    own = {"IR_DATASETS_HOME": str(home / "irds")}
    by_call = client(hub, home, "-c", IR_DATASETS, REPOSITORY, "v1.0.0", **own)
    by_variable = client(hub, home, "-c", IR_DATASETS, **own, MS_MARCO_SHIFT_RELEASE=REPOSITORY)
    for done, folder in ((by_call, first), (by_variable, second)):
        assert done.returncode == 0, done.stderr
        found, release = json.loads(done.stdout), open_release(folder)
        rows = release.table("length", "test").filter(pl.col("cluster") == "short")
        assert [tuple(one) for one in found["queries"]] == rows.select("query_id", "text").rows()
        judged = release.qrels("dev").filter(pl.col("query_id").is_in(rows["query_id"].implode()))
        assert [tuple(one) for one in found["qrels"]] == judged.rows()
        assert [tuple(one) for one in found["docs"]] == release.table("passages", "passages").rows()


def test_load_dataset_sees_the_new_version(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put_release(hub, first, "v1.0.0")
    for revision in ("v1.0.0", "main"):
        texts = json.loads(client(hub, home, "-c", LOAD_TEXTS, REPOSITORY, revision).stdout)
        assert "how do dogs say and bark" not in texts and len(texts) == 4
    put_release(hub, second, "v1.1.0")
    for revision in ("v1.1.0", "main"):
        assert "how do dogs say and bark" in json.loads(
            client(hub, home, "-c", LOAD_TEXTS, REPOSITORY, revision).stdout
        )
    assert "how do dogs say and bark" not in json.loads(
        client(hub, home, "-c", LOAD_TEXTS, REPOSITORY, "v1.0.0").stdout
    )


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
    assert "how do dogs" in recipe(second).stdout and "how do cats" in recipe(first).stdout


def test_a_publish_killed_at_any_moment_ends_as_one_that_was_not(
    first: Path, second: Path, hub: Hub, home: Path
) -> None:
    """Kills where KILLS says so, else three; after each, the version published before is untouched."""
    assert publish(hub, home, first).returncode == 0
    begun = time.perf_counter()
    assert publish(hub, home, first).returncode == 0, "which finds nothing to do"
    seconds, killed = time.perf_counter() - begun, 0
    repository = hub.repositories[REPOSITORY]
    before = tree(repository.commits[repository.tags["v1.0.0"]].tree)
    arguments = ["-m", "builder", "publish", second, "--repo-id", REPOSITORY, "--tag", "v1.1.0"]
    draw = random.Random(0).uniform  # the earliest first: a publish that ends leaves the next nothing to do
    for moment in sorted(draw(0.1, 1.5) * seconds for _ in range(int(os.environ.get("KILLS", "3")))):
        process = clients.Running([*map(str, arguments)], environment_of(hub, home), home.parent)
        time.sleep(moment)
        killed += process.kill().returncode != 0
        assert tree(repository.commits[repository.tags["v1.0.0"]].tree) == before
    done = publish(hub, home, second, tag="v1.1.0")
    assert done.returncode == 0, done.stderr
    assert killed
    assert tree(repository.commits[repository.tags["v1.1.0"]].tree) == content(second)
