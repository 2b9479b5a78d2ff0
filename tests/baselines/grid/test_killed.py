"""A cell killed in training, encoding and search: it ends with the run of a cell that was not."""

import json
import os
import signal
import subprocess
from pathlib import Path

import clients
import pytest

from baselines.cell import Cell
from baselines.environment import environment
from baselines.grid.grid import cells
from baselines.grid.status import of_grid
from eval_kit.release import Release
from eval_kit.search import shards
from tests.baselines.tiny_cells import tiny_options

pytestmark = pytest.mark.slow


SHARDS_DONE = f"index/{shards.DONE}"
ONE_CELL = """
import json, os, signal, sys
from pathlib import Path
from baselines.config import parse
from baselines.grid import work
from eval_kit.search import shards
from baselines.grid.grid import cells
from eval_kit.release import open_release
shards.SHARD, work.QUERIES_AT_ONCE = 20, 1
options = parse(json.loads(sys.argv[3]), "test").systems
cell = cells(options, open_release(sys.argv[1]), Path(sys.argv[2]), shifts=["length"])[0]
pattern, count = sys.argv[4], int(sys.argv[5])

def reached():
    if pattern.endswith(".jsonl"):
        log = cell.folder / pattern
        return log.exists() and os.path.getsize(log) > count * 110
    return len(list(cell.folder.glob(pattern))) >= count

def kill(event, arguments):
    if event == ("open" if pattern.endswith(".jsonl") else "os.rename") and reached():
        os.kill(os.getpid(), signal.SIGKILL)

if count:
    sys.addaudithook(kill)
print(work.attempt(cell))
"""


def test_a_cell_killed_in_training_encoding_and_search_ends_with_the_same_run(release: Release, tmp_path: Path):
    options = tiny_options("biencoder", steps=16, checkpoint_every=4)
    whole, killed = (
        cells({"biencoder": options}, release, tmp_path / name, shifts=["length"])[0] for name in ("whole", "killed")
    )

    def do(cell: Cell, pattern: str = "", count: int = 0) -> subprocess.CompletedProcess[str]:
        """Do the cell, until it holds so many files of that pattern, or lines of that file."""
        written = json.dumps({"systems": {"biencoder": options.as_json()}})
        arguments = [str(release.folder), str(cell.root), written, pattern, str(count)]
        return clients.run(["-c", ONE_CELL, *arguments], os.environ | environment(threads=1), None, neural=True)

    def kill_at(pattern: str, count: int) -> None:
        done = do(killed, pattern, count)
        assert done.returncode == -signal.SIGKILL, done.stderr

    def times(pattern: str) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in killed.folder.glob(pattern)}

    kill_at("training/checkpoints/checkpoint-*/trainer_state.json", 1)
    assert not killed.model.exists()
    kill_at(SHARDS_DONE, 5)
    encoded = (killed.own_index / shards.DONE).read_text().splitlines()
    assert not (killed.own_index / shards.MANIFEST).exists()
    model = times("model/*")
    kill_at("parts/*.trec", 5)
    assert 5 <= len(times("parts/*.trec")) < 50
    assert not killed.run.exists()
    assert model.items() <= times("model/*").items()
    assert len(encoded) >= 4  # a kill may come before a line
    assert (killed.own_index / shards.DONE).read_text().splitlines()[: len(encoded)] == encoded
    assert [cell["state"] for cell in of_grid(killed.root)] == ["under way"]
    for cell in (whole, killed):
        done = do(cell)
        assert done.stdout == "None\n", done.stderr
    assert killed.published_run.read_bytes() == whole.published_run.read_bytes()
    assert [cell["state"] for cell in of_grid(killed.root)] == ["done"]
    assert "biencoder.length.short" in (killed.model / "README.md").read_text()
