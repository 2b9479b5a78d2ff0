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
from baselines.beir import folders, search
from file_server import Server

from builder.cli import app
from builder.sources.beir_download import install, remarks
from builder.sources.fetch import UnavailableError
from eval_kit.errors import UserError
from eval_kit.protocols.beir import suite
from eval_kit.release.beir_suite import BeirDataset, dataset_named, datasets

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


def unzipped(folder: Path, files: Mapping[str, str] = FOLDER) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("name", ["nfcorpus", "cqadupstack"])
def test_a_dataset_is_downloaded_once_in_its_own_layout(server: Server, tmp_path: Path, name: str) -> None:
    dataset = served(server, name)
    folder = install(dataset, tmp_path)
    assert folder == tmp_path / name and visible(tmp_path) == [name], "the zip is gone"
    paths = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert paths == set(files_of(name))
    count = max(1, len(dataset.folders))
    assert f"{5 * count:,} passages, where Table 1 has {dataset.passages:,}" in remarks(dataset, folder)
    assert remarks(replace(dataset, passages=5 * count, queries=count), folder) == dataset.remarks
    assert install(dataset, tmp_path) == folder and len(server.requests) == 1, "not downloaded again"


@pytest.mark.slow
def test_the_whole_suite_from_download_to_table(server: Server, tmp_path: Path) -> None:
    """Every dataset of the registry; those that BEIR does not distribute are folders of the user's."""
    for name, known in datasets().items():
        if known.url:
            install(served(server, name), tmp_path)
        else:
            assert unzipped(tmp_path / name) == install(known, tmp_path)
    parts = folders(tmp_path, [])
    assert len(parts) == 19 + 12
    runs = search(["bm25"], parts, tmp_path / "runs", 101)
    results = suite(runs, parts)
    rows = {cells[0].text: cells for cells in results.tables()[1].rows()}
    assert list(rows) == [name + " (R_cap@100)" * (name == "trec-covid") for name in datasets()]
    assert rows["nfcorpus"][2].text == "0.250" and rows["trec-covid (R_cap@100)"][2].text == "0.498"
    of_dataset = {row["dataset"]: row for row in results.to_polars().filter(measure="R@100").to_dicts()}
    assert len(of_dataset) == 20 + 12 and of_dataset["cqadupstack"]["queries"] == 12
    assert "q2 Q0" in runs["bm25"][parts.index(tmp_path / "msmarco")].read_text(), "dev is MS MARCO's split"
    assert of_dataset["msmarco"]["value"] == 1 == of_dataset["nfcorpus"]["value"]


def test_judged_passages_that_the_corpus_lacks_are_counted(tmp_path: Path) -> None:
    folder = unzipped(tmp_path / "nfcorpus")
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\tp9\t1\nq2\tp9\t1\nq2\tp8\t0\n")
    known = replace(dataset_named("nfcorpus"), passages=5, queries=2)
    assert remarks(known, folder) == ["2 judged passages are not in corpus.jsonl; nothing can find them"]
    corpus = folder / "corpus.jsonl"
    corpus.write_text('{"title": "", "_id": "p1"}\r\n{"_id": "p\\u0039"}\n{"_id": "p8"}\n')
    assert remarks(replace(known, passages=3), folder) == []
    corpus.write_text('{"_id": "p1"}\n{"_id": 7}\n')
    with pytest.raises(UserError, match=r'corpus\.jsonl:2: expected a JSON object with "_id", a string'):
        remarks(known, folder)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no zip at all", "nfcorpus.zip: is not a zip file that can be unpacked: File is not a zip file"),
        (zipped("other", FOLDER), "other/corpus.jsonl is not in the folder nfcorpus/"),
        (zipped("nfcorpus", {"../../evil": "x"}), "nfcorpus/../../evil is not in the folder nfcorpus/"),
        (zipped("nfcorpus", {}), "nfcorpus.zip: holds no files"),
    ],
)
def test_zips_that_are_refused_leave_no_folder(server: Server, tmp_path: Path, content: bytes, sentence: str) -> None:
    dataset = served(server, "nfcorpus", content)
    with pytest.raises(UserError) as error:
        install(dataset, tmp_path / "beir")
    assert sentence in str(error.value)
    assert visible(tmp_path / "beir") == ["nfcorpus.zip"] and not (tmp_path / "evil").exists()
    with pytest.raises(UnavailableError, match=r"is not the declared file: md5 .*, expected a89dba18a62ef92f7d323ec8"):
        install(replace(dataset, md5=dataset_named("nfcorpus").md5), tmp_path / "other")
    assert visible(tmp_path / "other") == []


def test_a_disk_that_fills_leaves_nothing_half_installed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = served(server, "nfcorpus")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("builder.sources.beir_download._unpack", full)
        with pytest.raises(UserError, match="nfcorpus: cannot be written: No space left on device"):
            install(dataset, tmp_path)
    assert visible(tmp_path) == ["nfcorpus.zip"]
    assert install(dataset, tmp_path).is_dir() and len(server.requests) == 1, "the verified zip serves again"


def test_processes_at_once_download_it_once(server: Server, tmp_path: Path) -> None:
    dataset = served(server, "scifact")
    server.slow = 0.5
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        folders = pool.starmap(install, [(dataset, tmp_path)] * 3)
    assert folders == [tmp_path / "scifact"] * 3 and len(server.requests) == 1


def test_the_list_and_what_cannot_be_downloaded(command, tmp_path: Path) -> None:
    done = command("builder", "beir")
    assert done.returncode == 0 and "nfcorpus" in done.stdout and "14,914,602" in done.stdout
    assert "with --md5" in done.stdout
    done = command("builder", "beir", "bioasq", "--out", tmp_path / "beir")
    assert done.returncode == 2 and "BEIR does not distribute it" in done.stderr and done.stderr.count("\n") == 1
    needless = "--md5 is for one dataset whose md5 is not known"
    for arguments, sentence in (
        (["nf"], "BEIR has no dataset 'nf'"),
        (["trec-covid-beir"], r"the md5 of https://\S+/trec-covid-beir.zip is not known here; give it with --md5"),
        (["--md5", "0" * 32], needless),
        (["nfcorpus", "--md5", "0" * 32], needless),
        (["nfcorpus", "trec-covid-beir", "--md5", "0" * 32], needless),
    ):
        with pytest.raises(UserError, match=sentence):
            app(["beir", *arguments, "--out", str(tmp_path / "beir")], standalone_mode=False)
    assert visible(tmp_path) == []


def test_folders_that_the_user_has_are_left_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bioasq").mkdir()
    (tmp_path / "mine").mkdir()
    app(["beir", "mine", "--out", str(tmp_path)], standalone_mode=False)
    assert capsys.readouterr().out == f"{tmp_path / 'mine'}\n", "a dataset that BEIR does not have"
    assert install(dataset_named("bioasq"), tmp_path) == tmp_path / "bioasq"
    assert visible(tmp_path) == ["bioasq", "mine"]
    assert not list(tmp_path.glob("*.lock")), "the folder may be read-only"
