"""A grid on a real Ray cluster of two nodes on this machine, one of which is killed half-way.

Who connects to the cluster is a process of its own: Ray takes the handler of SIGSEGV from a Java machine that stands in
its process, which lives by it (ray-project/ray#36415), and other tests leave one in this process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tiny_checkpoints import tiny

from baselines import config
from baselines.cells.cell import Cell
from baselines.grid.grid import cells, run
from baselines.options import Options
from baselines.runners import local
from baselines.systems import system
from baselines.training.queries import passage_texts
from eval_kit.release import Release
from eval_kit.search import shards
from tests.baselines.grids import small_release, until

pytestmark = pytest.mark.slow

MEMORY = 100 * 1024**2
STEPS = {"steps": 10, "checkpoint_every": 5}
GRID = """
import json, sys
from functools import partial
from pathlib import Path
from baselines.config import checked
from baselines.grid.grid import cells
from baselines.grid.grid import run
from baselines.runners import ray
from eval_kit.release import open_release
grid = cells(checked(json.loads(sys.argv[3]), "test"), open_release(sys.argv[1]), Path(sys.argv[2]), shifts=["length"])
with open(sys.argv[4], "w") as ended:  # Ray says on stdout that a node is gone
    for outcome in run(grid, partial(ray.run, threads=1, many_passages=1)):
        print(outcome.name.file, outcome.state, outcome.reason, file=ended, flush=True)
"""
ENCODING = """
import json, sys
from pathlib import Path
from eval_kit.search import shards
from baselines.runners import ray, ray_encoding
from baselines.systems import system
from eval_kit.search.texts import PassageTexts
shards.SHARD = 300
ray.connect()
texts, folder, model, options = sys.argv[1:]
retriever = system("biencoder").retriever(model, json.loads(options))
ray_encoding.encode_with_ray(retriever, PassageTexts(Path(texts)), Path(folder), gpus=1, threads=1)
"""
UNSEEN = """
import sys
from pathlib import Path
from eval_kit.models.dense import Dense
from baselines.runners import ray, ray_encoding
from eval_kit.errors import UserError
ray_encoding.environment = lambda *_: {"CUDA_VISIBLE_DEVICES": "0"}
ray.connect()
try:
    ray_encoding.encode_with_ray(Dense(sys.argv[1]), [("p", "alpha")], Path(sys.argv[2]), gpus=1, threads=1)
except UserError as error:
    Path(sys.argv[2], "said").write_text(str(error))
"""
SEEN = """
import json, os, pickle, sys, time
from pathlib import Path
from baselines.config import checked
from baselines.grid.grid import cells
from baselines.grid.stages import Outcome
from baselines.runners import ray, ray_encoding
from eval_kit.release import open_release

folder = Path(sys.argv[2])

def noting(step):
    def note(cell, *_):
        Path(folder, f"{cell.name.system} {step}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
        return Outcome(cell.name, "done")
    return note

class Actor:
    def __init__(self, *_):
        pass

    def __call__(self, block):
        import pyarrow as pa

        time.sleep(0.5)
        return pa.table({"result": [pickle.dumps(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))]})

for step in ("train_cell", "encode_cell", "run_cell"):
    setattr(ray, step, noting(step))
grid = cells(checked(json.loads(sys.argv[3]), "test"), open_release(sys.argv[1]), folder, shifts=["length"])
assert {outcome.state for outcome in ray.run(grid, threads=1, many_passages=1)} == {"done"}
ray_encoding._Actor = Actor
for gpus in (0, 1):
    seen = list(ray_encoding._by_actors((None, None), gpus, 1, print, [(number,) for number in range(4)]))
    (folder / f"actors {gpus}").write_text(" ".join(seen))
"""
SEARCH = """
from eval_kit.models.dense import Dense
from baselines.cli import main

def refuse(*_):
    raise AssertionError("the driver encodes")

Dense.encode_passages = refuse
main()
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with one CPU each, and a GPU that Ray believes in and torch does not see."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # 15 by default: they would starve beside other tests
        patch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")  # so that it is not looked for
        head = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=1, num_gpus=1, object_store_memory=MEMORY)
        yield made
        made.shutdown()


def written(options: dict[str, Options]) -> str:
    """A config of these systems, for a script."""
    return json.dumps({"systems": {name: own.as_json() for name, own in options.items()}})


def driver(nodes: Any, script: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A process that is connected to the cluster."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | {"RAY_ADDRESS": nodes.address})


@pytest.fixture(scope="module")
def options() -> dict[str, Options]:
    """BM25, and a bi-encoder of a few steps."""
    mini = config.load("mini")
    return {"bm25": mini["bm25"], "biencoder": replace(mini["biencoder"], **STEPS)}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return small_release(tmp_path_factory.mktemp("ray") / "ms-marco-shift")


@pytest.fixture(scope="module")
def by_local(release: Release, options: dict[str, Options], tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """The grid, done by processes of this machine."""
    grid = cells(options, release, tmp_path_factory.mktemp("local"), shifts=["length"])
    ended = list(run(grid, partial(local.run, workers=1, threads=1)))
    assert {one.state for one in ended} == {"done"}, ended
    return grid


def test_ray_data_makes_the_shards_that_one_process_makes(
    nodes: Any, release: Release, by_local: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import torch

    monkeypatch.setattr(shards, "SHARD", 300)
    trained = next(cell for cell in by_local if cell.name.system == "biencoder")
    options = json.dumps(trained.options.as_json())
    kept = passage_texts(trained)
    assert driver(nodes, ENCODING, kept.folder, tmp_path / "ray", trained.model, options).wait() == 0
    retriever = system("biencoder").retriever(trained.model, trained.options.as_json())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    retriever.index(kept, tmp_path / "alone")
    torch.set_num_threads(threads)
    ray, alone = shards.read(tmp_path / "ray"), shards.read(tmp_path / "alone")
    assert len(ray) > 600
    assert (ray.key, len(ray)) == (alone.key, len(alone))
    for (_, mine), (_, theirs) in zip(ray, alone, strict=True):
        np.testing.assert_array_equal(mine["vectors"], theirs["vectors"])
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "ray").rglob("*.npy"))
    retriever.index(kept, tmp_path / "ray")
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "ray").rglob("*.npy")) == before


def test_each_task_and_actor_sees_as_many_gpus_as_it_asks_for(
    release: Release, options: dict[str, Options], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of two that Ray believes in, on one machine. It would show all of them to a task that asks for none."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.delenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", raising=False)
    head = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": MEMORY, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        assert driver(made, SEEN, release.folder, tmp_path, written(options)).wait() == 0
    finally:
        made.shutdown()
    seen = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert seen.pop("bm25 run_cell") == seen.pop("biencoder encode_cell") == ""
    assert seen.pop("actors 0").strip() == ""
    of_actors = seen.pop("actors 1").split(" ")
    assert len(of_actors) == 4 and {*of_actors} <= {"0", "1"}
    assert sorted(seen) == ["biencoder run_cell", "biencoder train_cell"] and {*seen.values()} <= {"0", "1"}


def test_a_gpu_that_torch_does_not_see_is_one_sentence(nodes: Any, tmp_path: Path):
    assert driver(nodes, UNSEEN, tiny("dense"), tmp_path).wait() == 0
    said = (tmp_path / "said").read_text()
    assert said.startswith("the cluster cannot encode the passages: this machine lists 1 GPUs, but torch ")
    assert "\n" not in said


def test_a_beir_folder_is_encoded_on_the_cluster(nodes: Any, by_local: list[Cell], tmp_path: Path):
    trained = next(cell for cell in by_local if cell.name.system == "biencoder")
    passages = [{"_id": passage, "text": text} for passage, text in islice(passage_texts(trained), 50)]
    queries = [{"_id": f"q{row}", "text": passage["text"]} for row, passage in enumerate(passages[:3])]
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    judged = "".join(f"q{row}\t{passages[row]['_id']}\t1\n" for row in range(3))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    model = (trained.model, "--beir", folder, "--name", "run")
    assert driver(nodes, SEARCH, "search", *model, "--runner", "ray", "--out", tmp_path / "ray").wait() == 0
    assert driver(nodes, "from baselines.cli import main; main()", "search", *model, "--out", tmp_path).wait() == 0
    run = (tmp_path / "ray" / "run.trec").read_bytes()
    assert run == (tmp_path / "run.trec").read_bytes() and run.count(b"\n") == 150


def test_a_cluster_that_loses_a_node_ends_with_the_same_runs(
    nodes: Any, release: Release, options: dict[str, Options], by_local: list[Cell], tmp_path: Path
):
    grid = cells(options, release, tmp_path, shifts=["length"])
    outcomes = tmp_path / "outcomes.txt"
    begun = driver(nodes, GRID, release.folder, tmp_path, written(options), outcomes)
    until(lambda: begun.poll() is not None or (outcomes.exists() and outcomes.read_text()))
    nodes.remove_node(nodes.worker_nodes.copy().pop(), allow_graceful=False)
    assert begun.wait() == 0
    assert sorted(outcomes.read_text().splitlines()) == sorted(f"{cell.name.file} done None" for cell in grid)
    for mine, theirs in zip(grid, by_local, strict=True):
        assert mine.published.read_bytes() == theirs.published.read_bytes(), mine.name


def test_without_ray_one_sentence_names_the_extra(release: Release, tmp_path: Path):
    script = "import sys; sys.modules['ray'] = None; from baselines.cli import main; main()"
    config_file = tmp_path / "config.json"
    config_file.write_text(json.dumps({"systems": {"bm25": {"depth": 10}}}))
    arguments = ["grid", "run", "--config", config_file, "--out", tmp_path / "grid", "--release", release.folder]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments), "--runner", "ray"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "baselines: the runner 'ray' needs Ray: install the extra 'cluster'\n"
    assert not (tmp_path / "grid").exists()
