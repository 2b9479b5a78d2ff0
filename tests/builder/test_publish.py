"""Publishing, and loading what was published, by the unmodified clients, each in its own process and ``HF_HOME``.

The Hub is :mod:`hub_server` on the loopback interface: nothing leaves this machine.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import clients
import polars as pl
import pytest
from drafts import BY_HAND, content, small_draft, written
from hub_server import TOKEN, Hub, Repository, Tree

from builder.publish import publish as publish_here
from eval_kit.authors.draft import Table
from eval_kit.documents import Lack
from eval_kit.errors import UserError
from eval_kit.release import open_release, read_manifest

pytestmark = pytest.mark.slow

REPOSITORY = "org/ms-marco-shift"
WRITES = {"preupload", "commit", "tag"}

type Done = subprocess.CompletedProcess[str]


def environment_of(hub: Hub, home: Path) -> dict[str, str]:
    """The environment of a user of the Hub ``hub``, whose caches are in ``home``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    return {**inherited, **own, "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1", "COLUMNS": "200"}


def client(hub: Hub, home: Path, *arguments: object, **environment: str) -> Done:
    """Run python with these arguments as such a user."""
    return clients.run([*map(str, arguments)], {**environment_of(hub, home), **environment}, home.parent)


def publish(hub: Hub, home: Path, folder: Path, *options: object, tag: str = "v1.0.0", **environment: str) -> Done:
    arguments = (folder, "--repo-id", REPOSITORY, "--tag", tag, *options)
    return client(hub, home, "-m", "builder", "publish", *arguments, **environment)


def user_error(done: Done) -> str:
    """The one sentence that a failed command printed."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [sentence] = done.stderr.strip().splitlines()
    assert sentence.startswith("builder: ") and TOKEN not in sentence
    return sentence


def tree(hub: Hub, revision: str = "main") -> Tree:
    """What the dataset holds, without what the Hub itself put there."""
    return {path: data for path, data in hub.at(REPOSITORY, revision)[1].items() if path != ".gitattributes"}


def put(hub: Hub, files: Path | Tree, tag: str | None = None) -> None:
    """Place a release, or other files, in the Hub's state, without a client."""
    repository = hub.repositories.setdefault(REPOSITORY, Repository())
    oid = repository.commit({".gitattributes": b"", **(content(files) if isinstance(files, Path) else files)})
    if tag:
        repository.tags[tag] = oid


def state(hub: Hub) -> Any:
    repository = hub.repositories[REPOSITORY]
    return dict(repository.commits), repository.head, dict(repository.tags)


def opens(hub: Hub, home: Path, *revisions: str | None, **environment: str) -> list[str]:
    """What opening the release at each revision, in one process, gives: version and digest, or one sentence."""
    done = client(
        hub,
        home,
        "-c",
        OPEN,
        json.dumps([REPOSITORY + (f"@{name}" if name else "") for name in revisions]),
        **environment,
    )
    assert done.returncode == 0, done.stderr
    outcomes: list[str] = json.loads(done.stdout)
    return outcomes


def named(folder: Path) -> str:
    """A release's version and digest, as OPEN says them."""
    manifest = read_manifest(folder)
    return f"{manifest.version} {manifest.digest}"


OPEN = """
import json, sys
from eval_kit.errors import UserError
from eval_kit.release import open_release
outcomes = []
for name in json.loads(sys.argv[1]):
    try:
        release = open_release(name)
        for table in release.manifest.tables:
            release.table(*table.key)
        outcomes.append(f"{release.version} {release.digest}")
    except UserError as error:
        outcomes.append(str(error))
print(json.dumps(outcomes))
"""
LOAD = """
import json, sys
from datasets import get_dataset_config_names, load_dataset
repository, revision = sys.argv[1:]
for config in get_dataset_config_names(repository, revision=revision):
    streams = load_dataset(repository, config, revision=revision, streaming=True)
    for split, rows in load_dataset(repository, config, revision=revision).items():
        assert list(rows) == list(streams[split])
        labels = {name: kind.names for name, kind in rows.features.items() if hasattr(kind, "names")}
        print(json.dumps([f"{config}/{split}", labels, rows.to_dict()]))
"""
IR_DATASETS = """
import json, ir_datasets, eval_kit.integrations.irds
dataset = ir_datasets.load(next(name for name in ir_datasets.registry if name.endswith("shift/length/short")))
print(json.dumps([tuple(query) for query in dataset.queries_iter()]))
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1.0.0 of a small release, with a table that the next one lacks."""
    draft = small_draft()
    extra = Table("validation", "validation", pl.DataFrame({"query_id": ["5"], "text": ["five"]}), BY_HAND)
    folder = tmp_path_factory.mktemp("first") / "ms-marco-shift"
    return written(folder, replace(draft, tables=[*draft.tables, extra])).folder


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1.1.0: one table gone, one changed."""
    texts = ["what is  a cat", "how do dogs say and bark", "naïve café ☕ prices", "d\\ne"]
    folder = tmp_path_factory.mktemp("second") / "ms-marco-shift"
    return written(folder, version="1.1.0", texts=texts).folder


def test_what_is_published_is_what_clients_load(hub: Hub, home: Path, first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, folder := tmp_path / "ms-marco-shift")
    for name in ("notes.txt", "reports/.env"):
        (folder / name).write_text("mine")
    refused = publish(hub, home, folder)
    assert refused.returncode == 2 and "notes.txt" in refused.stderr and not hub.repositories.get(REPOSITORY)
    (folder / "notes.txt").unlink()
    done = publish(hub, home, folder)
    assert done.returncode == 0, done.stderr
    repository = hub.repositories[REPOSITORY]
    assert tree(hub) == content(first), "and nothing else that lies in the folder"
    assert repository.tags == {"v1.0.0": repository.head} and len(repository.commits) == 2

    seen = len(hub.steps)
    assert "nothing to do" in publish(hub, home, first).stdout
    assert not WRITES & set(hub.steps[seen:])

    loaded = client(hub, tmp_path / "load", "-c", LOAD, REPOSITORY, "v1.0.0")
    assert loaded.returncode == 0, loaded.stderr
    tables = {}
    for table, labels, columns in map(json.loads, loaded.stdout.splitlines()):
        tables[table] = columns | {name: [names[code] for code in columns[name]] for name, names in labels.items()}
    frames = {f"{table.config}/{table.split}": table.path for table in read_manifest(first).tables}
    assert tables == {key: pl.read_parquet(first / path).to_dict(as_series=False) for key, path in frames.items()}
    assert opens(hub, tmp_path / "open", "v1.0.0", None, repository.head) == [named(first)] * 3
    by_variable = client(hub, tmp_path / "irds", "-c", IR_DATASETS, MS_MARCO_SHIFT_RELEASE=REPOSITORY)
    short = open_release(first).queries("length.short").select("query_id", "text")
    assert [tuple(query) for query in json.loads(by_variable.stdout)] == short.rows()


def test_the_next_version_is_one_commit_that_removes_what_is_gone(
    hub: Hub, home: Path, first: Path, second: Path
) -> None:
    put(hub, first, "v1.0.0")
    planned = publish(hub, home, second, "--dry-run", tag="v1.1.0")
    assert planned.returncode == 0 and not {"create", *WRITES} & set(hub.steps)
    lines = planned.stdout.splitlines()
    assert {"  - data/validation/validation-00000-of-00001.parquet", "  ~ manifest.json"} <= set(lines)
    assert not any(".gitattributes" in line for line in lines)
    assert publish(hub, home, second, tag="v1.1.0").returncode == 0
    assert tree(hub, "v1.1.0") == content(second) and tree(hub, "v1.0.0") == content(first)
    assert len(hub.repositories[REPOSITORY].commits) == 2
    older = written(home / "1.0.1", version="1.0.1").folder
    assert "has version 1.1.0" in user_error(publish(hub, home, older, tag="v1.0.1"))


def test_a_dry_run_changes_nothing_and_needs_no_token(hub: Hub, home: Path, first: Path) -> None:
    done = publish(hub, home, first, "--dry-run", "--json", "-", HF_TOKEN="")
    assert done.returncode == 0 and json.loads(done.stdout)["added"] == sorted(content(first))
    assert hub.repositories == {}
    assert "HF_HUB_OFFLINE" in user_error(publish(hub, home, first, "--dry-run", HF_HUB_OFFLINE="1"))


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        ("create", 500, "Nothing was changed"),
        ("refs", 401, "hf auth login"),
        ("preupload", 403, "no write access"),
        ("commit", 500, "HTTP 500"),
        ("commit", 413, "too large for the Hub. Install hf_xet, which sends it in parts. Nothing is tagged yet\n"),
        ("tag", 500, "Run the same command again"),
    ],
)
def test_after_a_refusal_the_same_command_finishes(
    step: str, status: int, words: str, hub: Hub, home: Path, first: Path, second: Path
) -> None:
    put(hub, first, "v1.0.0")
    hub.refused[step] = status
    assert words in f"{user_error(publish(hub, home, second, tag='v1.1.0'))}\n"
    repository = hub.repositories[REPOSITORY]
    assert list(repository.tags) == ["v1.0.0"] and tree(hub) == content(second if step == "tag" else first)
    hub.refused.clear()
    assert publish(hub, home, second, tag="v1.1.0").returncode == 0
    assert tree(hub, "v1.1.0") == content(second) and len(repository.commits) == 2


@pytest.mark.parametrize(
    ("step", "status", "answer"),
    [
        ("create", 200, b"<html>log in</html>"),
        ("preupload", 200, b"null"),
        ("commit", 204, b""),
        ("info", 200, b"[]"),
        ("refs", 200, b'{"branches": []}'),
        ("tag", 200, b"{}"),
    ],
)
def test_what_is_no_answer_of_the_hub_is_a_sentence(
    step: str, status: int, answer: bytes, hub: Hub, home: Path, first: Path
) -> None:
    hub.instead[step] = (status, answer)
    assert "Nothing is tagged" in user_error(publish(hub, home, first))
    hub.instead.clear()
    assert publish(hub, home, first).returncode == 0 and tree(hub, "v1.0.0") == content(first)


def test_an_upload_that_was_cut_off_between_two_commits_goes_on(hub: Hub, home: Path, first: Path) -> None:
    """The client commits a large or slow upload in parts; those files alone are not somebody else's dataset."""
    put(hub, {path: data for path, data in content(first).items() if path != "manifest.json"})
    assert publish(hub, home, first).returncode == 0
    assert tree(hub, "v1.0.0") == content(first)
    put(hub, content(first) | {"README.md": b"edited by hand"})
    hub.repositories[REPOSITORY].tags.clear()
    assert publish(hub, home, first).returncode == 0
    assert tree(hub, "v1.0.0") == content(first), "the tag holds the release, not what only has its manifest"


def test_a_head_that_moves_meanwhile_is_not_overwritten(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put(hub, first)
    moved = content(first) | {"README.md": b"by hand"}
    hub.before["commit"] = lambda: put(hub, moved)
    assert "changed meanwhile" in user_error(publish(hub, home, second, tag="v1.1.0"))
    assert tree(hub) == moved and not hub.repositories[REPOSITORY].tags


@pytest.mark.parametrize("disturbed", ["", "ignored", "edited", "removed", "moved"])
def test_what_is_tagged_is_what_was_verified(disturbed: str, hub: Hub, home: Path, first: Path, tmp_path: Path) -> None:
    """By the client as users have it, with hf_xet, which sends a large upload in parts."""
    shutil.copytree(first, folder := tmp_path / "ms-marco-shift")
    table = next(folder.glob("data/qrels/*.parquet"))
    if disturbed == "ignored":
        hub.ignored = ("data/qrels",)
    elif disturbed == "moved":
        hub.slipped_in = {"notes.txt": b"by hand"}
    elif disturbed:
        hub.before["create"] = table.unlink if disturbed == "removed" else lambda: table.write_bytes(b"PAR1")
    done = publish(hub, home, folder, HF_HUB_DISABLE_XET="0")
    if disturbed:
        assert user_error(done) and not hub.repositories[REPOSITORY].tags
        hub.ignored, hub.slipped_in = (), {}
        shutil.copytree(first, folder, dirs_exist_ok=True)
        done = publish(hub, home, folder, HF_HUB_DISABLE_XET="0")
    assert done.returncode == 0, done.stderr
    assert tree(hub, "v1.0.0") == content(first)


def test_what_is_published_or_somebody_elses_is_not_touched(hub: Hub, home: Path, first: Path) -> None:
    other = written(home / "other", texts=["what is a dog", "how do dogs say and bark", "c d e", "f"]).folder
    alike: Tree = {"manifest.json": b'{"name": "x"}', "README.md": b"", "data.csv": b"a,b\n"}
    cases: list[tuple[Path | Tree, str | None, Path, list[str], str]] = [
        (first, "v1.0.0", other, [], "with other content"),
        (first, "v1.0.0", first, ["--private"], "is already public"),
        (alike, None, first, [], "data.csv"),
    ]
    for files, tag, release, options, words in cases:
        hub.repositories.clear()
        put(hub, files, tag)
        before = state(hub)
        assert words in user_error(publish(hub, home, release, *options))
        assert state(hub) == before and not WRITES & set(hub.steps)


def test_private_is_seen_by_its_owner_alone(hub: Hub, home: Path, first: Path) -> None:
    assert publish(hub, home, first, "--private").returncode == 0
    assert hub.repositories[REPOSITORY].private
    [sentence] = opens(hub, home.with_name("reader"), "v1.0.0", HF_TOKEN="")
    assert "hf auth login" in sentence


def break_table(folder: Path) -> None:
    path = folder / "data/length/test-00000-of-00001.parquet"
    pl.read_parquet(path).head(1).write_parquet(path)


def link_a_folder(folder: Path) -> None:
    (folder / "data").rename(folder.parent / "elsewhere")
    (folder / "data").symlink_to(folder.parent / "elsewhere")


def old_audit(folder: Path) -> None:
    audit = {"headline": "Nothing leaks.", "release": {"version": "1.0.0", "digest": "0" * 64}}
    (folder / "reports" / "audit.json").write_text(json.dumps(audit))


def partial(folder: Path) -> None:
    shutil.rmtree(folder)
    written(folder, replace(small_draft(), missing=[Lack("topic/train", "it cannot be obtained")]))


@pytest.mark.parametrize(
    ("change", "tag", "place"),
    [
        (break_table, "v1.0.0", "length/test"),
        (lambda folder: (folder / "README.md").write_text("---\nconfigs: [\n---\n"), "v1.0.0", "README.md"),
        (lambda folder: (folder / "README.md").unlink(), "v1.0.0", "README.md"),
        (lambda folder: (folder / "manifest.json").unlink(), "v1.0.0", "not a release"),
        (old_audit, "v1.0.0", "reports/audit.json"),
        (link_a_folder, "v1.0.0", "data is a link"),
        (partial, "v1.0.0", "topic/train"),
        (lambda folder: None, "v2.0.0", "v1.0.0"),
    ],
)
def test_a_folder_unfit_to_be_published_is_refused_without_the_hub(
    change: Callable[[Path], object], tag: str, place: str, first: Path, tmp_path: Path
) -> None:
    shutil.copytree(first, folder := tmp_path / "ms-marco-shift")
    change(folder)
    with pytest.raises(UserError, match=place):
        publish_here(folder, REPOSITORY, tag)


def test_make_publish(hub: Hub, home: Path, first: Path, tmp_path: Path) -> None:
    """Our Makefile in a git repository of its own: only what is committed, and told in the changelog, goes out."""
    (repository := tmp_path / "clone").mkdir()
    root = Path(__file__).parents[2]
    shutil.copy(root / "Makefile", repository)
    changelog = (root / "CHANGELOG.md").read_text()
    assert changelog.count("\n### Data 1.0.0\n") == 1
    (repository / "CHANGELOG.md").write_text(changelog.replace("### Data 1.0.0", "### Data 1.0.00"))

    def make() -> Done:
        variables = [f"BIN={Path(sys.executable).parent}", f"RELEASE={first}", f"REPO={REPOSITORY}", "TAG=v1.0.0"]
        own = environment_of(hub, home) | {"PYTHONPATH": str(root)}
        command = ["make", "-o", ".venv/.ready", "publish", *variables]
        return subprocess.run(command, cwd=repository, env=own, capture_output=True, text=True, timeout=180)

    def commit() -> None:
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "a"]):
            subprocess.run([*git, *arguments], cwd=repository, check=True)

    commit()
    assert "no section" in make().stderr
    (repository / "CHANGELOG.md").write_text(changelog)
    assert "commit or put aside" in make().stderr and hub.steps == []
    commit()
    done = make()
    assert done.returncode == 0, done.stderr
    assert list(hub.repositories[REPOSITORY].tags) == ["v1.0.0"]


# Readers


def test_open_is_never_another_revision(hub: Hub, home: Path, first: Path, second: Path) -> None:
    put(hub, first, "v1.0.0")
    put(hub, first, "v3.0.0")
    assert opens(hub, home, None) == [named(first)]
    put(hub, second, "v1.1.0")
    *releases, other_tag, unknown = opens(hub, home, None, "v1.0.0", "v3.0.0", "v9.9.9")
    assert releases == [named(second), named(first)]
    assert "has version 1.0.0 under the tag" in other_tag and "no such revision" in unknown
    commit = hub.repositories[REPOSITORY].tags["v1.0.0"]
    hub.refused["info"] = 500
    for environment in ({"HF_HUB_OFFLINE": "1"}, {}):
        # v1.1.0 was never asked for by that name
        fixed, by_commit, unasked, *heads = opens(hub, home, "v1.0.0", commit, "v1.1.0", "main", None, **environment)
        assert fixed == by_commit == named(first) and heads == [named(second)] * 2
        assert "Could not download" in unasked


@pytest.mark.parametrize(
    "id",
    [
        "https://huggingface.co/datasets/org/ms-marco-shift",
        "https://huggingface.co/datasets/org/ms-marco-shift/",
        "https://huggingface.co/datasets/org/ms-marco-shift/tree/v1.0.0",
        "hf://datasets/org/ms-marco-shift@v1.0.0",
        "datasets/org/ms-marco-shift",
        "org/ms-marco-shift@v1.0.0",
    ],
)
def test_the_ways_to_write_an_id(hub: Hub, home: Path, first: Path, second: Path, id: str) -> None:
    put(hub, first, "v1.0.0")
    if "v1.0.0" in id:
        put(hub, second, "v1.1.0")
    done = client(hub, home, "-c", OPEN, json.dumps([id]))
    assert json.loads(done.stdout) == [named(first)]


def test_what_comes_from_the_cache_alone_says_so(hub: Hub, home: Path, first: Path) -> None:
    said = f"from eval_kit.release import open_release as o; print(o({REPOSITORY!r}).identity.get('cautions'))"
    put(hub, first, "v1.0.0")
    assert "cache" not in client(hub, home, "-c", said).stdout
    for away in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        assert hub.repositories[REPOSITORY].head in client(hub, home, "-c", said, **away).stdout
    hub.refused["info"] = 404  # the Hub answers: what it says holds
    assert client(hub, home, "-c", said).returncode


def test_only_what_the_manifest_names_is_downloaded_and_damage_is_seen(hub: Hub, home: Path, first: Path) -> None:
    put(hub, {**content(first), "data/more.parquet": bytes(1_000_000), "a/b.py": b""}, "v1.0.0")
    hub.refused["resolve"] = 403
    assert "Ask for it on the page" in opens(hub, home, "v1.0.0")[0]
    hub.refused.clear()
    assert opens(hub, home, "v1.0.0") == [named(first)]
    [snapshot] = home.glob("hub/datasets--org--ms-marco-shift/snapshots/*")
    assert set(content(snapshot)) == {"manifest.json", *(table.path for table in read_manifest(first).tables)}
    blob = (snapshot / "data/length/test-00000-of-00001.parquet").resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    assert "parquet" in opens(hub, home, "v1.0.0", HF_HUB_OFFLINE="1")[0]


def test_the_cards_recipe_is_never_another_version(hub: Hub, home: Path, first: Path, second: Path) -> None:
    """Plain ``load_dataset`` serves any cached version where the Hub is down; so the card says how to be sure."""

    def recipe(folder: Path, **environment: str) -> Done:
        blocks = (folder / "README.md").read_text().split("```")
        (code,) = (block.removeprefix("python") for block in blocks if "snapshot_download(" in block)
        return client(hub, home, "-c", code.replace("ORG/", "org/") + "print(rows['test']['text'][:])", **environment)

    put(hub, first, "v1.0.0")
    assert "how do cats" in recipe(first).stdout
    put(hub, second, "v1.1.0")
    down = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    assert recipe(second, **down).returncode and "how do dogs" in recipe(second).stdout
    assert "how do dogs" in recipe(second, **down).stdout
