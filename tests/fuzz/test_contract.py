"""For any bytes: exit status 0 or 2, one sentence, no traceback, no control character, bounded memory, no file changed.

``make test`` tries the same few of each kind every time; ``make fuzz MINUTES=n`` tries others for as long as it is let.
"""

import gzip
import json
import os
import resource
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from eval_kit.cli import app
from eval_kit.documents import Rule
from eval_kit.files.beir import read_corpus
from eval_kit.files.digests import file_sha256
from eval_kit.protocols.scoring import score
from eval_kit.release import open_release
from eval_kit.stats import vectors
from tests.fuzz.contract import keeps_the_contract
from tests.fuzz.strange import documents, texts
from tests.manifests import release_digest

releases = pytest.importorskip("builder.release", exc_type=ImportError)
config = pytest.importorskip("baselines.config", exc_type=ImportError)
baselines = pytest.importorskip("baselines.cli", exc_type=ImportError)

LONG = "FUZZ_EXAMPLES" in os.environ
MOST_MEMORY = 3 << 20
"""KiB at the peak of the whole process, libraries and all."""
fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", 8)),
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
PACKINGS = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}
RUN = b"".join(
    b"%d Q0 %d %d %f t\n" % (query, passage, 1, 1 / passage) for query in (1, 2, 10, 30) for passage in (7, 8)
)
GRID = {
    "cell.json": {"digest": "0" * 64, "cell": {"system": "bm25", "shift": "length", "held_out": "short", "seed": 0}},
    "state.json": {
        "state": "training",
        "attempts": 1,
        "seconds": {"training": 1.5},
        "facts": {"training": {"first_loss": 0.5, "last_loss": 0.25}, "indexing": {"bytes": 5}},
        "progress": {"step": 1, "steps": 2, "loss": 0.5},
        "reason": None,
    },
}
TABLES = ["data/length/test", "data/qrels/dev", "data/passages/passages"]


def small_draft():
    """Four queries in two clusters."""
    clusters = pl.Series("cluster", ["short", "long", "short", "short"], dtype=pl.Enum(["short", "long"]))
    queries = pl.DataFrame({"query_id": ["1", "2", "10", "30"], "text": ["a cat", "the naïve café", "é", "d"]})
    frames = {
        ("length", "test"): queries.with_columns(clusters),
        ("qrels", "dev"): pl.DataFrame(
            {"query-id": ["1", "2", "10", "30"], "corpus-id": ["7", "8", "7", "8"], "score": [1, 2, 1, 0]}
        ),
        ("passages", "passages"): pl.DataFrame({"passage_id": ["7", "8"], "text": ["seven", "eight"]}),
    }
    rule = Rule("made by hand", "tests/fuzz/test_contract.py")
    return releases.Draft(
        kind="mini",
        version="1.0.0",
        collection=None,
        seed=0,
        tables=[releases.Table(*key, frame, rule) for key, frame in frames.items()],
        test_sets=[
            releases.new_test_set(f"length.{name}", "length", "length", "test", "dev", ["RR@10"], ("cluster", [name]))
            for name in ("short", "long")
        ],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a small release ``release``, a run ``run.trec`` that fits it, and all else that commands read."""
    folder = tmp_path_factory.mktemp("fuzz") / "inside"
    releases.write(small_draft(), folder / "release")
    (folder / "run.trec").write_bytes(RUN)
    opened = open_release(folder / "release")
    board = folder / "board"
    (board / "sub").mkdir(parents=True)
    document = {
        "system": "s",
        "team": "t",
        "architecture": "dense",
        "training_data": ["MS MARCO train"],
        "licence": "MIT",
        "links": ["https://example.org"],
        "release": {"version": opened.version, "digest": opened.digest},
        "runs": [{"file": "run.trec"}],
    }
    (board / "sub" / "submission.json").write_text(json.dumps(document))
    (board / "sub" / "run.trec").write_bytes(RUN)
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_bytes(b'{"_id": "7", "title": "a", "text": "b"}\n{"_id": "8", "text": "c"}\n')
    (beir / "queries.jsonl").write_bytes(b'{"_id": "1", "text": "a"}\n{"_id": "2", "text": "b"}\n')
    (beir / "qrels" / "test.tsv").write_bytes(b"query-id\tcorpus-id\tscore\n1\t7\t1\n2\t8\t2\n")
    (folder / "beir.trec").write_bytes(RUN)
    np.save(folder / "vectors.npy", np.eye(4, 3, dtype=np.float32))
    (folder / "vectors.ids.txt").write_text("1\n2\n10\n30\n")
    pl.DataFrame({"query_id": ["1", "2"], "vector": [[1.0, 2.0], [0.5, 0.5]]}).write_parquet(folder / "v.parquet")
    cell = folder / "grid" / "0000"
    cell.mkdir(parents=True)
    for name, content in GRID.items():
        (cell / name).write_text(json.dumps(content))
    scored = score([folder / "run.trec"], opened)
    (folder / "scores.json").write_text(json.dumps(scored.as_json()))
    (folder / "scores.tsv").write_text(scored.per_query().write_csv(separator="\t"))
    return folder


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MOST_MEMORY


class Swapped:
    """A file with other content while the block lasts."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content, self.before = path, content, path.read_bytes()

    def __enter__(self) -> None:
        self.path.write_bytes(self.content)

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.before)


def kit(folder: Path, *arguments: object, statuses: tuple[int, ...] = (0, 2)):
    return keeps_the_contract(partial(app, [str(argument) for argument in arguments]), folder, statuses)


@fuzz
@given(text=texts(RUN), packing=st.sampled_from(sorted(PACKINGS)))
@example(text=b"\n" * 3_000_000, packing="gzip")
@example(text=b"1" * 12_000_000, packing="zstd")
@example(text=b"1 Q0 7 1 1.0 " + b"t" * 9_000_000, packing="gzip")
@example(text=b"1 Q0 7 1 1.0 t\n" * 200_000, packing="zstd")
@example(text=b"=1\x1b[31m Q0 \xe2\x80\xae 1 1.0 t\n", packing="plain")
def test_runs(folder: Path, text: bytes, packing: str):
    with Swapped(folder / "run.trec", PACKINGS[packing](text)):
        kit(folder, "score", folder / "run.trec", "--release", folder / "release", "--allow-missing")


@fuzz
@given(place=st.integers(0, 200), value=st.binary(min_size=1, max_size=20))
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_damaged_packings(folder: Path, packing: str, place: int, value: bytes):
    packed = PACKINGS[packing](RUN)
    with Swapped(folder / "run.trec", packed[:place] + value + packed[place + len(value) :]):
        kit(folder, "score", folder / "run.trec", "--release", folder / "release")


@fuzz
@given(data=st.data(), refit=st.booleans())
def test_manifests(folder: Path, data: st.DataObject, refit: bool):
    path = folder / "release" / "manifest.json"
    text = data.draw(documents(json.loads(path.read_bytes())))
    if refit:
        try:
            manifest = json.loads(text)
            text = json.dumps(manifest | {"digest": release_digest(manifest)}).encode()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
    with Swapped(path, text):
        kit(folder, "score", folder / "run.trec", "--release", folder / "release")
        kit(folder, "compare", "--check", folder / "board" / "sub", "--release", folder / "release")


@fuzz
@given(data=st.data(), name=st.sampled_from(TABLES))
def test_tables(folder: Path, data: st.DataObject, name: str):
    """Damaged files whose digest was edited to fit, so that the parquet reader gets them."""
    path, manifest = folder / "release" / f"{name}-00000-of-00001.parquet", folder / "release" / "manifest.json"
    with Swapped(path, data.draw(texts(path.read_bytes()))):
        document = json.loads(manifest.read_bytes())
        next(table for table in document["tables"] if table["path"].startswith(name))["sha256"] = file_sha256(path)
        with Swapped(manifest, json.dumps(document).encode()):
            kit(folder, "score", folder / "run.trec", "--release", folder / "release")


@fuzz
@given(data=st.data())
def test_submissions(folder: Path, data: st.DataObject):
    path = folder / "board" / "sub" / "submission.json"
    with Swapped(path, data.draw(documents(json.loads(path.read_bytes())))):
        kit(folder, "compare", "--check", folder / "board" / "sub", "--release", folder / "release")
        kit(folder, "leaderboard", folder / "board", "--release", folder / "release", "--page", "/dev/null")


@fuzz
@given(
    name=st.text(min_size=1, max_size=80) | st.binary(min_size=1, max_size=40),
    link=st.none() | st.sampled_from(["loop", "/", "/dev/zero", "../../run.trec", "gone", "."]),
)
def test_names_and_links_in_a_submission(folder: Path, name: str | bytes, link: str | None):
    submission = folder / "board" / "sub"
    shown = os.fsdecode(name) if isinstance(name, bytes) else name
    assume(not {"/", "\0"} & set(shown) and shown not in (".", ".."))
    try:
        path = submission / shown
        path.symlink_to(shown if link == "loop" else link) if link else path.write_bytes(b"x")
    except (OSError, UnicodeEncodeError):
        assume(False)
    try:
        kit(folder, "compare", "--check", submission, "--release", folder / "release")
    finally:
        path.unlink()


@fuzz
@given(data=st.data(), file=st.sampled_from(["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"]))
def test_beir_folders(folder: Path, data: st.DataObject, file: str):
    path = folder / "beir" / file
    with Swapped(path, data.draw(texts(path.read_bytes()))):
        kit(folder, "score", folder / "beir.trec", "--dataset", folder / "beir")
        keeps_the_contract(lambda: list(read_corpus(folder / "beir" / "corpus.jsonl")), folder)


@fuzz
@given(data=st.data(), name=st.sampled_from(["vectors.npy", "vectors.ids.txt", "v.parquet"]))
def test_vectors(folder: Path, data: st.DataObject, name: str):
    path = folder / name
    with Swapped(path, data.draw(texts(path.read_bytes()))):
        keeps_the_contract(lambda: vectors.read(folder / name.replace("ids.txt", "npy")), folder)


@fuzz
@given(data=st.data(), name=st.sampled_from(config.names()))
def test_configs(folder: Path, data: st.DataObject, name: str):
    path = folder / "config.json"
    path.write_bytes(data.draw(documents(json.loads((config.FOLDER / f"{name}.json").read_bytes()))))
    keeps_the_contract(lambda: config.load(path), folder)
    path.unlink()


@fuzz
@given(data=st.data(), name=st.sampled_from(sorted(GRID)))
def test_states_of_cells(folder: Path, data: st.DataObject, name: str):
    with Swapped(folder / "grid" / "0000" / name, data.draw(documents(GRID[name]))):
        keeps_the_contract(partial(baselines.app, ["grid", "status", str(folder / "grid")]), folder)


@fuzz
@given(data=st.data())
def test_scores_to_compare(folder: Path, data: st.DataObject):
    path = folder / data.draw(st.sampled_from(["scores.json", "scores.tsv"]))
    base = path.read_bytes()
    with Swapped(path, data.draw(texts(base) if path.suffix == ".tsv" else documents(json.loads(base)))):
        runs = [folder / "scores.json", folder / "run.trec"]
        kit(folder, "compare", *runs, "--release", folder / "release", "--format", "csv")


@fuzz
@given(data=st.data())
def test_options(folder: Path, data: st.DataObject):
    value = data.draw(st.sampled_from(["-1", "0", "9" * 30, "nan", "x" * 5_000, "", " ", "é", "/dev/zero", "loop"]))
    option = data.draw(st.sampled_from(["--release", "--json", "--format", "--seed", "--system", "--revision"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "loop").symlink_to("loop")
        try:
            kit(folder, "protocol", folder / "run.trec", "--release", folder / "release", option, value)
        finally:
            (folder / "loop").unlink()
