"""BEIR's datasets from a real server on the loopback interface, in the layout of BEIR's own zips."""

import hashlib
import io
import json
import multiprocessing
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import Server

from builder.cli import app
from builder.sources.beir_download import install
from eval_kit.authors.fetch import UnavailableError
from eval_kit.errors import UserError
from eval_kit.release.beir_suite import BeirDataset, dataset_named

FOLDER = {
    "corpus.jsonl": "".join(json.dumps({"_id": f"p{i}", "title": "", "text": f"text {i}"}) + "\n" for i in range(5)),
    "queries.jsonl": '{"_id": "q1", "text": "text 1"}\n{"_id": "q2", "text": "text 2"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\tp1\t1\n",
    "qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq2\tp2\t1\n",
}


def files_of(name: str) -> dict[str, str]:
    """Of each of the folders that the dataset has, or of the dataset itself."""
    parts = dataset_named(name).folders
    return {f"{part}/{path}": text for part in parts for path, text in FOLDER.items()} or FOLDER


def zipped(name: str, files: Mapping[str, str]) -> bytes:
    """A zip as BEIR's: entries for the folders too, everything below the dataset's name."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/", "")
        for path, text in files.items():
            archive.writestr(f"{name}/{path}", text)
    return memory.getvalue()


def served(server: Server, name: str, content: bytes | None = None) -> BeirDataset:
    """BEIR's dataset of that name, whose zip the server has."""
    server.content = content or zipped(name, files_of(name))
    md5 = hashlib.md5(server.content, usedforsecurity=False).hexdigest()
    return replace(dataset_named(name), url=f"{server.url}/{name}.zip", md5=md5)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("name", ["nfcorpus", "cqadupstack"])
def test_a_dataset_is_downloaded_once_in_its_own_layout(server: Server, tmp_path: Path, name: str) -> None:
    dataset = served(server, name)
    folder = install(dataset, tmp_path)
    assert folder == tmp_path / name and visible(tmp_path) == [name], "the zip is gone"
    paths = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert paths == set(files_of(name))
    assert install(dataset, tmp_path) == folder and len(server.requests) == 1, "not downloaded again"


def test_another_zip_or_another_md5_leaves_no_folder(server: Server, tmp_path: Path) -> None:
    for content in (b"no zip at all", zipped("other", FOLDER)):
        dataset = served(server, "nfcorpus", content)
        with pytest.raises(UserError, match="zip"):
            install(dataset, tmp_path / "beir")
        with pytest.raises(UnavailableError, match="md5"):
            install(replace(dataset, md5=dataset_named("nfcorpus").md5), tmp_path / "beir")
        assert not (tmp_path / "beir" / "nfcorpus").exists()


def test_processes_at_once_download_it_once(server: Server, tmp_path: Path) -> None:
    dataset = served(server, "scifact")
    server.slow = 0.5
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        folders = pool.starmap(install, [(dataset, tmp_path)] * 3)
    assert folders == [tmp_path / "scifact"] * 3 and len(server.requests) == 1


def test_the_list_and_what_cannot_be_downloaded(command, tmp_path: Path) -> None:
    done = command("builder", "beir")
    assert done.returncode == 0 and "nfcorpus" in done.stdout and "14,914,602" in done.stdout
    for name, noun in (("bioasq", "does not distribute"), ("trec-covid-beir", "md5"), ("nf", "no dataset 'nf'")):
        with pytest.raises(UserError, match=noun):
            app(["beir", name, "--out", str(tmp_path / "beir")], standalone_mode=False)
    assert visible(tmp_path) == []


def test_folders_that_the_user_has_are_left_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bioasq").mkdir()
    (tmp_path / "mine").mkdir()
    app(["beir", "mine", "--out", str(tmp_path)], standalone_mode=False)
    assert capsys.readouterr().out == f"{tmp_path / 'mine'}\n", "a dataset that BEIR does not have"
    assert install(dataset_named("bioasq"), tmp_path) == tmp_path / "bioasq"
    assert visible(tmp_path) == ["bioasq", "mine"]
    assert not list(tmp_path.glob("*.lock")), "the folder may be read-only"
