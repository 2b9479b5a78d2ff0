"""A grid on a real Ray cluster of two nodes on this machine, one of which is killed half-way.

Who connects to the cluster is a process of its own: Ray takes the handler of SIGSEGV from a Java machine that stands in
its process, which lives by it (ray-project/ray#36415), and other tests leave one in this process.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import clients
import numpy as np
import pytest
import torch
from tiny_checkpoints import tiny

from baselines.cell import Cell
from baselines.grid.grid import cells, run
from baselines.systems import system
from baselines.training.queries import passage_texts
from eval_kit.models.dense import Dense
from eval_kit.release import Release
from eval_kit.search import shards
from tests.baselines.tiny_cells import tiny_options, until

pytestmark = pytest.mark.slow

OPTIONS = {"bm25": tiny_options("bm25", depth=20), "biencoder": tiny_options("biencoder", steps=10, checkpoint_every=5)}
CONFIG = json.dumps({"systems": {name: own.as_json() for name, own in OPTIONS.items()}})
GRID = """
import json, sys
from pathlib import Path
from baselines.config import parse
from baselines.grid.grid import cells
from baselines.runners import ray
from eval_kit.release import open_release
systems = parse(json.loads(sys.argv[3]), "test").systems
grid = cells(systems, open_release(sys.argv[1]), Path(sys.argv[2]), shifts=["length"])
with open(sys.argv[4], "w") as ended:  # Ray says on stdout that a node is gone
    for cell, failure in ray.run(grid, threads=1, many_passages=1):
        print(cell.name.file, failure, file=ended, flush=True)
"""
ENCODING = """
import json, sys
from pathlib import Path
from baselines.runners import ray, ray_encoding
from baselines.systems import system
from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.search import shards
from eval_kit.search.texts import PassageTexts
ray.connect()
texts, model, options, bare, out = sys.argv[1:]

shards.SHARD = 300
retriever = system("biencoder").retriever(model, json.loads(options))
ray_encoding.encode_with_ray(retriever, PassageTexts(Path(texts)), Path(out, "shards"), gpus=1, threads=1)

lost = Dense(bare)
assert lost.identity
lost.model = str(Path(out, "nowhere"))
try:
    ray_encoding.encode_with_ray(lost, [("p", "alpha")], Path(out, "lost"), gpus=1, threads=1)
except UserError as error:
    Path(out, "said").write_text(str(error))
"""
SEEN = """
import json, os, pickle, sys, time
from pathlib import Path
from baselines.config import parse
from baselines.grid.grid import cells
from baselines.runners import ray, ray_encoding
from eval_kit.release import open_release

folder = Path(sys.argv[2])

def noting(step):
    def note(cell, *_):
        Path(folder, f"{cell.name.system} {step}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    return note

class Actor:
    def __init__(self, *_):
        pass

    def __call__(self, block):
        import pyarrow as pa

        time.sleep(0.5)
        return pa.table({"arrays": [pickle.dumps(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))]})

for step in ("train_cell", "encode_cell", "attempt"):
    setattr(ray, step, noting(step))
grid = cells(parse(json.loads(sys.argv[3]), "test").systems, open_release(sys.argv[1]), folder, shifts=["length"])
assert {failure for _, failure in ray.run(grid, threads=1, many_passages=1)} == {None}
ray_encoding._Actor = Actor
for gpus in (0, 1):
    seen = list(ray_encoding._by_actors(None, gpus, 1, print, [[str(number)] for number in range(4)]))
    (folder / f"actors {gpus}").write_text(" ".join(seen))
"""


@contextmanager
def cluster(patch: pytest.MonkeyPatch, **resources: int) -> Iterator[Any]:
    """One of a single node with these CPUs and GPUs: Ray believes in the GPUs, torch does not see them."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_worker_niceness", "0")  # 15 by default: they would starve beside other tests
    made = Cluster(initialize_head=True, head_node_args={**node(**resources), "include_dashboard": False})
    try:
        yield made
    finally:
        made.shutdown()


def node(**resources: int) -> dict[str, int]:
    return {"object_store_memory": 100 * 1024**2, **resources}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with one CPU and one GPU each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")  # so that no GPU is looked for
        with cluster(patch, num_cpus=1, num_gpus=1) as made:
            made.add_node(**node(num_cpus=1, num_gpus=1))
            yield made


def driver(nodes: Any, script: str, *arguments: object) -> clients.Running:
    """A process that is connected to the cluster."""
    command = ["-c", script, *map(str, arguments)]
    return clients.Running(command, os.environ | {"RAY_ADDRESS": nodes.address}, neural=True)


def finish(process: clients.Running) -> None:
    done = process.wait()
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def alone(release: Release, tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """The grid, done in this process."""
    torch.set_num_threads(1)
    grid = cells(OPTIONS, release, tmp_path_factory.mktemp("alone"), shifts=["length"])
    assert [failure for _, failure in run(grid)] == [None] * len(grid)
    return grid


@pytest.fixture(scope="module")
def trained(alone: list[Cell]) -> Cell:
    return next(cell for cell in alone if cell.name.system == "biencoder")


@pytest.fixture(scope="module")
def encoded(nodes: Any, trained: Cell, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process has encoded on the cluster: shards, and why another failed."""
    out = tmp_path_factory.mktemp("encoded")
    options = json.dumps(trained.options.as_json())
    texts = passage_texts(trained).folder
    finish(driver(nodes, ENCODING, texts, trained.model, options, tiny("dense"), out))
    return out


def test_ray_data_makes_the_shards_that_one_process_makes(
    encoded: Path, trained: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shards, "SHARD", 300)
    retriever: Any = system("biencoder").retriever(trained.model, trained.options.as_json())
    retriever.index(passage_texts(trained), tmp_path / "alone")
    on_ray, by_one = shards.read(encoded / "shards"), shards.read(tmp_path / "alone")
    assert len(on_ray) > 600
    assert (on_ray.key, len(on_ray)) == (by_one.key, len(by_one))
    for (_, mine), (_, theirs) in zip(on_ray, by_one, strict=True):
        np.testing.assert_array_equal(mine["vectors"], theirs["vectors"])
    here, encoded_texts = Dense.encode_passages, []
    monkeypatch.setattr(Dense, "encode_passages", lambda *given: encoded_texts.extend(given[1]) or here(*given))
    retriever.index(passage_texts(trained), encoded / "shards")
    assert encoded_texts in ([], [*shards.PROBE]), "no passage is encoded again"


def test_a_model_that_an_actor_cannot_load_is_one_sentence(encoded: Path):
    said = (encoded / "said").read_text()
    assert said.startswith("The Ray cluster could not encode the passages") and "nowhere" in said
    assert "\n" not in said


def test_each_task_and_actor_sees_as_many_gpus_as_it_asks_for(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of two that Ray believes in, on one machine. It would show all of them to a task that asks for none."""
    monkeypatch.delenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", raising=False)
    with cluster(monkeypatch, num_cpus=2, num_gpus=2) as made:
        finish(driver(made, SEEN, release.folder, tmp_path, CONFIG))
    seen = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert seen.pop("bm25 attempt") == seen.pop("biencoder encode_cell") == ""
    assert seen.pop("actors 0").strip() == ""
    of_actors = seen.pop("actors 1").split(" ")
    assert len(of_actors) == 4 and {*of_actors} <= {"0", "1"}
    assert sorted(seen) == ["biencoder attempt", "biencoder train_cell"] and {*seen.values()} <= {"0", "1"}


def test_a_cluster_that_loses_a_node_ends_with_the_same_runs(
    nodes: Any, release: Release, alone: list[Cell], tmp_path: Path
):
    grid = cells(OPTIONS, release, tmp_path, shifts=["length"])
    outcomes = tmp_path / "outcomes.txt"
    begun = driver(nodes, GRID, release.folder, tmp_path, CONFIG, outcomes)
    until(lambda: begun.ended() or (outcomes.exists() and outcomes.read_text()))
    nodes.remove_node(nodes.worker_nodes.copy().pop(), allow_graceful=False)
    finish(begun)
    assert sorted(outcomes.read_text().splitlines()) == sorted(f"{cell.name.file} None" for cell in grid)
    for mine, theirs in zip(grid, alone, strict=True):
        assert mine.published_run.read_bytes() == theirs.published_run.read_bytes(), mine.name


def test_without_ray_one_sentence_names_the_extra(release: Release, tmp_path: Path):
    script = "import sys; sys.modules['ray'] = None; from baselines.cli import main; main()"
    (tmp_path / "config.json").write_text(CONFIG)
    arguments = ["grid", "run", "--config", tmp_path / "config.json", "--out", tmp_path / "grid"]
    arguments += ["--release", release.folder, "--ray"]
    done = clients.run(["-c", script, *map(str, arguments)], os.environ, None, neural=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert ".[cluster]" in done.stderr
    assert not (tmp_path / "grid").exists()
