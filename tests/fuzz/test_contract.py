"""For any bytes: exit status 0 or 2, one sentence, no traceback, no control character, bounded memory, no file changed.

``make test`` tries the same few of each kind every time; ``make fuzz MINUTES=n`` tries others for as long as it is let.
"""

import gzip
import json
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from eval_kit.files.beir import read_corpus
from eval_kit.files.digests import file_sha256
from eval_kit.stats import vectors
from tests.fuzz.contract import Swapped, fuzz, keeps_the_contract, kit, scored
from tests.fuzz.strange import GRID, RUN, documents, texts
from tests.manifests import release_digest

config = pytest.importorskip("baselines.config", exc_type=ImportError)
baselines = pytest.importorskip("baselines.cli", exc_type=ImportError)

PACKINGS = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}
TABLES = ["data/length/test", "data/qrels/dev", "data/passages/passages"]


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
        kit(folder, "score", folder / "beir.trec", "--dataset", folder / "beir")
        keeps_the_contract(lambda: list(read_corpus(folder / "beir" / "corpus.jsonl")), folder)


@fuzz
@given(data=st.data(), name=st.sampled_from(["vectors.npy", "vectors.ids.txt"]))
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
