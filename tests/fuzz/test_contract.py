"""For any bytes: figures or one sentence, exit status 0 or 2, no traceback.

``make test`` tries the same few of each kind every time; ``make fuzz MINUTES=n`` tries others for as long as it is let.
"""

import gzip
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import eval_kit
from eval_kit.cli import app
from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.files.faults import RunError
from eval_kit.runs.reader import read_pieces
from tests.fuzz.strange import RUN, VALUES, documents, texts
from tests.manifests import release_digest

config = pytest.importorskip("baselines.config", exc_type=ImportError)
inside = pytest.importorskip("tests.fuzz.inside", exc_type=ImportError)

fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", 8)),
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
PACKINGS = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}
TABLES = ["data/length/test", "data/qrels/dev", "data/passages/passages"]
LONG_RUN = b"".join(b"%d Q0 p%d 1 %.3f t\n" % (query, rank, 1 / rank) for query in range(20) for rank in range(1, 30))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every test here works in."""
    made: Path = inside.make(tmp_path_factory.mktemp("fuzz") / "inside")
    return made


def kit(*arguments: object) -> None:
    """A command of the evaluator that succeeds, or refuses in one sentence."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code in (0, 2) or isinstance(done.exception, UserError), done.exception


def scored(folder: Path, *options: str) -> None:
    """The run is scored on the release."""
    kit("score", folder / "run.trec", "--release", folder / "release", *options)


class Swapped:
    """A file with other content while the block lasts."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content, self.before = path, content, path.read_bytes()

    def __enter__(self) -> None:
        self.path.write_bytes(self.content)

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.before)


@fuzz
@given(text=texts(RUN), packing=st.sampled_from(sorted(PACKINGS)))
@example(text=b"\n" * 3_000_000, packing="gzip")
@example(text=b"1" * 12_000_000, packing="zstd")
@example(text=b"1 Q0 7 1 1.0 " + b"t" * 9_000_000, packing="gzip")
@example(text=b"1 Q0 7 1 1.0 t\n" * 200_000, packing="zstd")
@example(text=b"=1\x1b[31m Q0 \xe2\x80\xae 1 1.0 t\n", packing="plain")
def test_runs(folder: Path, text: bytes, packing: str):
    with Swapped(folder / "run.trec", PACKINGS[packing](text)):
        scored(folder, "--allow-missing")


@fuzz
@given(place=st.integers(0, 200), value=st.binary(min_size=1, max_size=20))
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_damaged_packings(folder: Path, packing: str, place: int, value: bytes):
    packed = PACKINGS[packing](RUN)
    with Swapped(folder / "run.trec", packed[:place] + value + packed[place + len(value) :]):
        scored(folder)


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
        scored(folder)


@fuzz
@given(data=st.data(), name=st.sampled_from(TABLES))
def test_tables(folder: Path, data: st.DataObject, name: str):
    """Damaged files whose digest was edited to fit, so that the parquet reader gets them."""
    path, manifest = folder / "release" / f"{name}-00000-of-00001.parquet", folder / "release" / "manifest.json"
    with Swapped(path, data.draw(texts(path.read_bytes()))):
        document = json.loads(manifest.read_bytes())
        next(table for table in document["tables"] if table["path"].startswith(name))["sha256"] = file_sha256(path)
        with Swapped(manifest, json.dumps(document).encode()):
            scored(folder)


@fuzz
@given(data=st.data(), file=st.sampled_from(["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"]))
def test_beir_folders(folder: Path, data: st.DataObject, file: str):
    path = folder / "beir" / file
    with Swapped(path, data.draw(texts(path.read_bytes()))):
        kit("score", folder / "beir.trec", "--dataset", folder / "beir")


@fuzz
@given(data=st.data(), name=st.sampled_from(config.names()))
def test_configs(folder: Path, data: st.DataObject, name: str):
    path = folder / "config.json"
    path.write_bytes(data.draw(documents(json.loads((config.FOLDER / f"{name}.json").read_bytes()))))
    with suppress(UserError):
        config.read(path)
    path.unlink()


@fuzz
@given(text=texts(LONG_RUN), pieces=st.integers(1, 3_000))
def test_a_file_of_many_pieces_is_the_file_of_one(folder: Path, text: bytes, pieces: int):
    """The same lines or a refusal, wherever the borders of the pieces fall."""

    def lines(piece_bytes: int) -> list[tuple[Any, ...]] | None:
        try:
            return [row for piece in read_pieces(path, piece_bytes) for row in piece.rows()]
        except RunError:
            return None

    path = folder.parent / "pieces.trec"
    path.write_bytes(text)
    assert lines(max(64, pieces)) == lines(1 << 20)


ODD_IDS = ["", " ", "1\n2", "a\tb", "\u202e", (1,), True]
IDS = st.sampled_from(["1", "2", 1, 2.0, np.int64(10), None, b"1", *ODD_IDS])
SCORES = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70), st.sampled_from([np.float32(0.1), np.int64(0), None, "1", True, 1j, []])
)
RUNS = st.one_of(
    st.dictionaries(IDS, st.dictionaries(IDS, SCORES, max_size=3) | st.sampled_from(VALUES[:12]), max_size=3),
    st.lists(st.tuples(IDS, IDS, SCORES), max_size=4).map(
        lambda rows: {name: [row[at] for row in rows] for at, name in enumerate(("query_id", "passage_id", "score"))}
    ),
    st.sampled_from([None, 0, "", b"", [], {}, pl.DataFrame(), object(), np.zeros((2, 3)), "run\0", Path("gone")]),
)


@fuzz
@given(run=RUNS, frame=st.booleans(), name=st.sampled_from(["run", "", "a/b", "x" * 300, "\n", 1]))
def test_runs_in_memory(folder: Path, run: Any, frame: bool, name: Any):
    if frame and isinstance(run, dict) and "score" in run:
        with suppress(Exception):  # what polars itself refuses never reaches the kit
            run = pl.DataFrame(run, strict=False)
    for runs in (run, {name: run}, [run]):
        with suppress(UserError):
            eval_kit.score(runs, folder / "release", allow_missing=True)
        with suppress(UserError):
            eval_kit.compare([run, run], folder / "release", allow_missing=True)
        with suppress(UserError):
            eval_kit.write_run(run, folder.parent / "written.trec")
            eval_kit.score(folder.parent / "written.trec", folder / "release", allow_missing=True)
