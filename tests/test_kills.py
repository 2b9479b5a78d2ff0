"""SIGKILL at random moments, three processes at once: what is left is whole, or what was there before.

Searches, trainings and grids have tests of their own, which kill them where it matters.

A handful of kills by default, one a command; for more: ``KILLS=50 make test-slow T=tests/test_kills.py``.
"""

import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import clients
import pytest

from eval_kit.release import open_release

pytestmark = pytest.mark.slow

type Undisturbed = Callable[[str], tuple[dict[str, bytes], float]]

COMMANDS = {
    name: line.split()
    for name, line in {
        "build": "builder build mini --queries 500 --out out/release",
        "rebuilt": "builder build rebuilt --collection release --shift length --shift resttest --out out/rebuilt",
        "negatives": "builder negatives release --depth 50 --sample 10 --cache cache --threads 1",
        "lite": "builder lite release --dense none --passages 900 --depth 3 --out out/lite --cache cache",
        "export": "builder export release --format tevatron --out out/export",
        "page": "eval_kit protocol s.wh.wha.trec s.wh.how.trec s.wh.who.trec --release release --page out/page.html",
    }.items()
}
KILLS = int(os.environ.get("KILLS", len(COMMANDS)))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the commands read: a release and the runs of a grid on it."""
    folder = tmp_path_factory.mktemp("kills") / "prepared"
    (folder / "out").mkdir(parents=True)
    finish(COMMANDS["build"], folder)
    (folder / "out/release").rename(folder / "release")
    release = open_release(folder / "release")
    wh = [test_set for name, test_set in release.test_sets.items() if name.startswith("wh.")]
    queries = sorted({query for test_set in wh for query in test_set.queries})
    qrels = release.qrels(wh[0].qrels)
    judged = dict(zip(qrels["query_id"], qrels["passage_id"], strict=True))
    runs = [f"s.wh.{part}.trec" for part in ("wha", "how", "who")]
    for run in runs:
        text = ""
        for query in queries:
            score = random.Random(run + query).random()
            text += f"{query} Q0 {judged[query]} 1 {score} t\n{query} Q0 unjudged 2 0.5 t\n"
        (folder / run).write_text(text)
    return folder


@pytest.fixture(scope="module")
def undisturbed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """What a command leaves that nothing disturbs, and how many seconds it takes."""

    @cache
    def run(name: str) -> tuple[dict[str, bytes], float]:
        folder = shutil.copytree(prepared, tmp_path_factory.mktemp("undisturbed") / "whole")
        begun = time.monotonic()
        finish(COMMANDS[name], folder)
        return left(folder), time.monotonic() - begun

    return run


def begin(command: Sequence[str], folder: Path) -> clients.Running:
    return clients.Running(["-m", *command], os.environ, folder)


def finish(command: Sequence[str], folder: Path) -> None:
    done = begin(command, folder).wait()
    assert done.returncode == 0, done.stderr


def left(folder: Path) -> dict[str, bytes]:
    """Every file that a command leaves, without caches and the locks that stay."""
    paths = [path for top in ("out", "release") for path in sorted((folder / top).rglob("*"))]
    paths += [path for path in folder.iterdir() if path.name.startswith(".")]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.is_file() and not path.name.endswith(".lock")
    }


@pytest.mark.parametrize("number", range(KILLS))
def test_what_was_killed_and_run_again_has_the_bytes_of_what_was_not(
    number: int, prepared: Path, undisturbed: Undisturbed, tmp_path: Path
):
    name = list(COMMANDS)[number % len(COMMANDS)]
    command = COMMANDS[name]
    expected, seconds = undisturbed(name)
    folder = shutil.copytree(prepared, tmp_path / "killed")
    process = begin(command, folder)
    time.sleep(random.Random(number).uniform(0.2, 1.0) * seconds)
    process.kill()
    finish(command, folder)
    found = left(folder)
    assert sorted(found) == sorted(expected)
    assert [path for path in expected if found[path] != expected[path]] == []


@pytest.mark.parametrize("name", ["negatives", "export"])
def test_three_at_once_end_with_the_bytes_of_one(name: str, prepared: Path, undisturbed: Undisturbed, tmp_path: Path):
    folder = shutil.copytree(prepared, tmp_path / "shared")
    for process in [begin(COMMANDS[name], folder) for _ in range(3)]:
        done = process.wait()
        assert done.returncode == 0, done.stderr
    assert left(folder) == undisturbed(name)[0]
