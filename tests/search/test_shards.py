"""Passages are encoded once, whatever happens on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import clients
import numpy as np
import pytest

from eval_kit.errors import UserError
from eval_kit.search import shards
from tests.search.oracle import CHANGED, PASSAGES, ragged


class Counting:
    """Encodes a text as its length, and remembers what it was given; stops after so many texts."""

    def __init__(self, budget: int = 10**9) -> None:
        self.seen: list[str] = []
        self.budget = budget

    def __call__(self, texts: list[str]) -> shards.Arrays:
        if len(self.seen) + len(texts) > self.budget:
            raise KeyboardInterrupt
        self.seen += texts
        return {"vectors": np.array([[len(text), ord(text[0])] for text in texts], np.float32)}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD", 8)


def content(folder: Path) -> dict[str, bytes]:
    """All that is in an index."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".jsonl"):
            files[str(path.relative_to(folder))] = json.dumps(
                [*map(json.loads, path.read_text().splitlines())]
            ).encode()
        elif path.is_file() and path.name != ".lock":
            files[str(path.relative_to(folder))] = path.read_bytes()
    return files


def test_what_is_written_is_read_in_order(tmp_path: Path):
    made = shards.write(iter(PASSAGES), tmp_path, Counting(), "model")
    assert len(made) == 30
    assert [passage.decode() for passage in made.ids] == list(dict(PASSAGES))
    starts, blocks = zip(*((start, arrays["vectors"]) for start, arrays in made), strict=True)
    assert starts == (0, 8, 16, 24)
    assert np.concatenate(blocks)[:, 0].tolist() == [len(text) for _, text in PASSAGES]
    assert all(isinstance(block, np.memmap) for block in blocks)
    assert made.rank[np.argsort(list(dict(PASSAGES)))].tolist() == list(range(30))


def test_an_interrupted_encoding_goes_on_where_it_stopped(tmp_path: Path):
    stopped = Counting(budget=20)
    with pytest.raises(KeyboardInterrupt):
        shards.write(PASSAGES, tmp_path / "resumed", stopped, "model")
    with pytest.raises(UserError, match="resumed"):
        shards.read(tmp_path / "resumed")
    resumed = Counting()
    shards.write(PASSAGES, tmp_path / "resumed", resumed, "model")
    assert (len(stopped.seen), len(resumed.seen)) == (16, 14)
    shards.write(PASSAGES, tmp_path / "whole", Counting(), "model")
    assert content(tmp_path / "resumed") == content(tmp_path / "whole")


def test_nothing_is_encoded_twice_and_nothing_stale_is_kept(tmp_path: Path):
    def again(passages: list[tuple[str, str]], identity: str = "model") -> int:
        encode = Counting()
        key = shards.write(passages, tmp_path, encode, identity).key
        fresh = shards.write(passages, tmp_path.with_name(f"{tmp_path.name}-fresh-{key[:9]}"), Counting(), identity)
        assert content(tmp_path) == content(fresh.folder)
        return len(encode.seen)

    assert again(PASSAGES) == 30
    assert again(PASSAGES) == 0
    assert again(CHANGED) == 22
    assert again([*PASSAGES[:9], ("another id", PASSAGES[9][1]), *PASSAGES[10:]]) == 22
    assert again(PASSAGES[:18]) == 10
    assert again(PASSAGES[:18], "another model") == 18


WRITER = """
import sys, time, numpy as np
from pathlib import Path
from eval_kit.search import shards
from tests.search.oracle import PASSAGES
shards.SHARD = 8
def encode(texts):
    time.sleep(float(sys.argv[2]))
    print(len(texts), flush=True)
    return {"vectors": np.array([[len(text), ord(text[0])] for text in texts], np.float32)}
shards.write(PASSAGES, Path(sys.argv[1]), encode, "model")
"""


@pytest.mark.slow
def test_two_processes_encode_each_shard_once(tmp_path: Path):
    both = [clients.Running(["-c", WRITER, tmp_path / "both", "0.1"], os.environ) for _ in range(2)]
    encoded = [int(line) for process in both for line in process.wait().stdout.split()]
    assert [process.wait().returncode for process in both] == [0, 0]
    assert sum(encoded) == 30
    shards.write(PASSAGES, tmp_path / "whole", Counting(), "model")
    assert content(tmp_path / "both") == content(tmp_path / "whole")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_passages(tmp_path: Path):
    """160 MB of vectors, written and read under a limit of 300 MB for everything."""
    program = """
import resource, sys, numpy as np
from pathlib import Path
from eval_kit.search import shards
resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20))
encode = lambda texts: {"vectors": np.ones((len(texts), 200), np.float32)}
made = shards.write(((f"p{n}", "text") for n in range(200_000)), Path(sys.argv[1]), encode, "flat")
assert sum(float(arrays["vectors"].sum()) for _, arrays in made) == 200 * 200_000
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_full_disk_is_one_sentence_and_leaves_what_was_finished(tmp_path: Path):
    program = WRITER.replace(
        "shards.write(",
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150));"
        "from eval_kit.errors import reporting\nwith reporting('test'): shards.write(",
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path, "0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"test: Could not write {tmp_path}: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / shards.MANIFEST).exists()
    assert len(shards.write(PASSAGES, tmp_path, Counting(), "model")) == 30


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_model_that_gives_nan_is_refused(tmp_path: Path, dtype: str):
    with pytest.raises(UserError, match="between p0 and p7") as refused:
        shards.write(PASSAGES, tmp_path, lambda texts: {"vectors": np.full((len(texts), 2), np.nan, dtype)}, "model")
    assert ("bfloat16" in str(refused.value)) == (dtype == "float16")


def test_what_cannot_be_encoded_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="no passages"):
        shards.write([], tmp_path, Counting(), "model")
    made = shards.write([*PASSAGES, ("p3", "again")], tmp_path, Counting(), "model")
    with pytest.raises(UserError, match="p3"):
        made.rank  # noqa: B018


def test_an_index_of_shards_is_made_once(tmp_path: Path):
    def make(state: str) -> bool:
        with shards.building(tmp_path, "graph", state, ["graph"]) as wanted:
            (tmp_path / "graph").mkdir(exist_ok=True)
            (tmp_path / "graph" / "edges").write_text("1 2")
        return wanted

    assert [make("these"), make("these")] == [True, False]
    assert shards.is_built(tmp_path, "graph", "these")
    (tmp_path / "graph" / "edges").write_text("1 ")
    assert make("these")
    with pytest.raises(KeyboardInterrupt), shards.building(tmp_path, "graph", "others", ["graph"]):
        raise KeyboardInterrupt
    assert not any(shards.is_built(tmp_path, "graph", state) for state in ("these", "others"))


def rows_times(factor: float) -> Callable[[Path], object]:
    return lambda path: np.save(path, np.resize(rows := np.load(path), (int(len(rows) * factor), *rows.shape[1:])))


DAMAGES: list[Callable[[Path], object]] = [
    Path.unlink,
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"[1]\n{}\n"),
]


@pytest.mark.filterwarnings("ignore:.*damaged")
@pytest.mark.parametrize("name", ["rows", "lengths", "ids", "offsets", "probe.npz", shards.DONE, shards.MANIFEST])
def test_whatever_of_a_folder_is_cut_off_is_made_again(tmp_path: Path, name: str):
    def index(folder: Path) -> shards.Shards:
        return shards.write(PASSAGES, folder, ragged, shards.with_probe("model", folder, ragged))

    whole = index(tmp_path / "whole")
    name = name if "." in name else f"{name}.npy"
    for number, damage in enumerate(DAMAGES + [rows_times(0.5), rows_times(2)] * name.endswith("npy")):
        folder = tmp_path / str(number)
        shutil.copytree(whole.folder, folder)
        damage(folder / name)
        index(folder)
        assert content(folder) == content(whole.folder)
        assert content(shards.read(folder).folder) == content(whole.folder)


@pytest.mark.filterwarnings("ignore:.*damaged")
@pytest.mark.parametrize("name", [shards.DONE, shards.MANIFEST])
@pytest.mark.parametrize(
    "change", [{"rows": {"rows": -5}}, {"rows": "x"}, {"rows": None}, {"rows": {"rows": 1.5}}, {"key": 1}]
)
def test_fields_of_other_types_are_made_again(tmp_path: Path, name: str, change: dict[str, object]):
    whole = shards.write(PASSAGES, tmp_path / "whole", ragged, "model")
    before = content(whole.folder)
    first, *rest = (whole.folder / name).read_text().splitlines()
    (whole.folder / name).write_text("\n".join([json.dumps(json.loads(first) | change), *rest, ""]))
    shards.write(PASSAGES, whole.folder, ragged, "model")
    assert content(whole.folder) == before


def test_an_index_of_version_1_is_read_as_it_is(tmp_path: Path):
    """Its lines also had the seconds that a shard took."""
    made = shards.write(PASSAGES, tmp_path, Counting(), "model")
    for name in (shards.DONE, shards.MANIFEST):
        lines = (tmp_path / name).read_text().splitlines()
        (tmp_path / name).write_text("".join(json.dumps(json.loads(line) | {"seconds": 0.5}) + "\n" for line in lines))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != ".lock"}
    encode = Counting()
    assert shards.write(PASSAGES, tmp_path, encode, "model").key == made.key == shards.read(tmp_path).key
    assert not encode.seen and files.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}.items()


def test_an_index_that_replaced_an_array_stands_for_it(tmp_path: Path):
    def encoded() -> int:
        encode = Counting()
        key = shards.write(PASSAGES, tmp_path, encode, "model").key
        with shards.building(tmp_path, "graph", key, ["g"]) as missing:
            if missing:
                (tmp_path / "g").write_bytes((tmp_path / "vectors.npy").read_bytes())
        (tmp_path / "vectors.npy").unlink(missing_ok=True)
        return len(encode.seen)

    assert [encoded(), encoded()] == [30, 0]
    with pytest.raises(UserError, match="vectors"):
        shards.read(tmp_path).array("vectors")


def test_a_part_that_is_missing_is_encoded_again_and_that_is_said(tmp_path: Path):
    shards.write(PASSAGES, tmp_path, Counting(), "model")
    whole = content(tmp_path)
    np.save(tmp_path / "vectors.npy", np.load(tmp_path / "vectors.npy")[:20])
    with pytest.raises(UserError, match="20 of 30 rows"):
        shards.read(tmp_path)
    encode = Counting()
    with pytest.warns(UserWarning, match="all but the first 16"):
        shards.write(PASSAGES, tmp_path, encode, "model")
    assert len(encode.seen) == 14 and content(tmp_path) == whole


def test_rows_are_found_in_one_file_an_array_whatever_the_blocks(tmp_path: Path):
    made = shards.write(PASSAGES, tmp_path, ragged, "model")
    assert {path.name for path in tmp_path.iterdir()} == {
        ".lock", "ids.npy", "rows.npy", "lengths.npy", "offsets.npy", shards.MANIFEST, shards.DONE
    }  # fmt: skip
    whole = ragged([text for _, text in PASSAGES])
    lengths = whole["lengths"].tolist()
    assert made.offsets.tolist() == [0, *np.cumsum(lengths)]
    for passages in (1, 7, 8, 30, 100):
        starts, blocks = zip(*made.blocks(passages), strict=True)
        assert starts == tuple(range(0, 30, passages))
        assert np.concatenate([block["lengths"] for block in blocks]).tolist() == lengths
        assert np.array_equal(np.concatenate([block["rows"] for block in blocks]), whole["rows"])


KILLED = """
import os, signal, sys
from pathlib import Path
from eval_kit.search import shards
import numpy.lib.format
from tests.search.oracle import CHANGED, PASSAGES, ragged
shards.SHARD = 8
folder, step = Path(sys.argv[1]), int(sys.argv[2])
left = [step]

def hook(event, arguments):
    writes = event == "open" and str(folder) in str(arguments[0]) and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
    if writes or event in {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
shards.write(PASSAGES if sys.argv[3] == "new" else CHANGED, folder, ragged, "model")
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("change", ["new", "changed"])
def test_killed_at_any_step_it_ends_with_the_same_index(tmp_path: Path, change: str):
    """SIGKILL before a file or folder is opened for writing, renamed or removed, while rows are appended or cut off."""
    passages = PASSAGES if change == "new" else CHANGED
    start = tmp_path / "start"
    start.mkdir()
    if change == "changed":
        shards.write(PASSAGES, start, ragged, "model")
    whole = content(shards.write(passages, tmp_path / "whole", ragged, "model").folder)
    killed = []
    for step in [*range(1, 40, 2), *range(40, 400, 15)]:
        folder = tmp_path / str(step)
        shutil.copytree(start, folder)
        done = clients.run(["-c", KILLED, str(folder), str(step), change], os.environ, None)
        killed.append(done.returncode == -signal.SIGKILL)
        encode = Counting()
        shards.write(passages, folder, lambda texts, encode=encode: encode(texts) and ragged(texts), "model")
        assert change == "new" or len(encode.seen) <= 22
        locks = {".shards.json.part.lock"}  # empty, of a process killed once the index was whole
        assert {name: data for name, data in content(folder).items() if name not in locks} == whole
        shutil.rmtree(folder)
        if not killed[-1]:
            break
    assert sum(killed) >= 10 and not killed[-1]


MANY = """
import os, resource, sys, numpy as np
from pathlib import Path
from scipy.sparse import csr_matrix
os.fsync = lambda descriptor: None  # some thousand times
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from eval_kit.search import dense, late, shards, sparse
shards.SHARD = 2
folder, passages = Path(sys.argv[1]), [(f"p{number}", "text") for number in range(2_200)]
values = np.random.default_rng(0).normal(size=(2_200, 4)).astype(np.float32)
expected = lambda scores: [f"p{row}" for row in scores.argmax(1)]

def index(name, encode):
    rows = iter(values)
    encoded = shards.write(passages, folder / name, lambda texts: encode(np.array([next(rows) for _ in texts])), name)
    assert len(encoded) == 2_200
    return encoded

vectors = index("dense", lambda rows: {"vectors": rows})
weights = index("sparse", lambda rows: sparse.arrays_of(csr_matrix(np.abs(rows))))
tokens = index("late", lambda rows: {"tokens": np.repeat(rows, 2, 0), "lengths": np.full(len(rows), 2)})
query = values[:3]
for device in (None, "cpu"):
    assert [hits[0][0] for hits in dense.exact(query, vectors, 5, device)] == expected(query @ values.T)
    best = [hits[0][0] for hits in sparse.exact(csr_matrix(np.abs(query)), weights, 5, device)]
    assert best == expected(np.abs(query) @ np.abs(values).T)
assert [hits[0][0] for hits in late.exact(list(query[:, None]), tokens, 5, "cpu")] == expected(query @ values.T)
"""


@pytest.mark.slow
def test_1100_shards_are_searched_with_256_open_files(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", MANY, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
