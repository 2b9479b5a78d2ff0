"""BEIR's datasets from a real server on the loopback interface, in the layout of BEIR's own zips."""

import hashlib
import io
import json
import multiprocessing
import random
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from test_fetch import Server, server  # noqa: F401 - a fixture

from baselines.beir import folders, search
from builder.sources.beir_download import install, remarks
from builder.sources.fetch import UnavailableError
from eval_kit.errors import UserError
from eval_kit.protocols.beir import suite
from eval_kit.release.beir_suite import BeirDataset, datasets, named

type Run = Callable[..., subprocess.CompletedProcess[str]]

FOLDER = {
    "corpus.jsonl": "".join(json.dumps({"_id": f"p{i}", "title": "", "text": f"text {i}"}) + "\n" for i in range(5)),
    "queries.jsonl": '{"_id": "q1", "text": "text 1"}\n{"_id": "q2", "text": "text 2"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\tp1\t1\n",
    "qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq2\tp2\t1\n",
}


def zipped(name: str, files: Mapping[str, str]) -> bytes:
    """A zip as BEIR's: entries for the folders too, everything below the dataset's name."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/", "")
        for path, text in files.items():
            archive.writestr(f"{name}/{path}", text)
    return memory.getvalue()


def served(server: Server, name: str, content: bytes) -> BeirDataset:  # noqa: F811
    """BEIR's dataset of that name, whose zip the server has."""
    server.content = content
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return replace(named(name), url=f"{server.url}/{name}.zip", md5=md5)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("name", [name for name, dataset in datasets().items() if dataset.url])
def test_every_dataset_in_its_own_layout(server: Server, tmp_path: Path, name: str) -> None:  # noqa: F811
    parts = named(name).folders
    files = {f"{part}/{path}": text for part in parts for path, text in FOLDER.items()} or FOLDER
    dataset = served(server, name, zipped(name, files))
    folder = install(dataset, tmp_path)
    assert folder == tmp_path / name and visible(tmp_path) == [name], "the zip is gone"
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == set(files)
    count = max(1, len(parts))
    assert f"{5 * count:,} passages, where Table 1 has {dataset.passages:,}" in remarks(dataset, folder)
    assert remarks(replace(dataset, passages=5 * count, queries=count), folder) == dataset.remarks
    assert install(dataset, tmp_path) == folder and len(server.requests) == 1, "not downloaded again"


def test_the_annotated_trec_covid_has_no_known_md5(tmp_path: Path, command) -> None:
    annotated = named("trec-covid-beir")
    with pytest.raises(UserError, match=r"the md5 of https://\S+/trec-covid-beir.zip is not known here; give it with"):
        install(annotated, tmp_path)
    for names in ([], ["nfcorpus"], ["nfcorpus", "trec-covid-beir"]):
        done = command("builder", "beir", *names, "--out", tmp_path, "--md5", "0" * 32)
        assert done.returncode == 2 and "--md5 is for one dataset whose md5 is not known" in done.stderr
    assert "with --md5" in command("builder", "beir").stdout
    assert visible(tmp_path) == []


@pytest.mark.slow
def test_the_whole_suite_from_download_to_table(server: Server, tmp_path: Path) -> None:  # noqa: F811
    """Every dataset of the registry; those that BEIR does not distribute are folders of the user's."""
    for name, known in datasets().items():
        files = {f"{part}/{path}": text for part in known.folders for path, text in FOLDER.items()} or FOLDER
        if known.url:
            install(served(server, name, zipped(name, files)), tmp_path / "beir")
        else:
            (tmp_path / "beir" / name / "qrels").mkdir(parents=True)
            for path, text in files.items():
                (tmp_path / "beir" / name / path).write_text(text)
            assert install(known, tmp_path / "beir") == tmp_path / "beir" / name
    parts = folders(tmp_path / "beir", [])
    assert len(parts) == 19 + 12
    runs = search(["bm25"], parts, tmp_path / "runs", 101)
    results = suite(runs, parts)
    rows = {cells[0].text: cells for cells in results.tables()[1].rows()}
    assert list(rows) == [name + " (R_cap@100)" * (name == "trec-covid") for name in datasets()]
    assert rows["nfcorpus"][2].text == "0.250" and rows["trec-covid (R_cap@100)"][2].text == "0.498"
    of_dataset = {row["dataset"]: row for row in results.to_polars().filter(measure="R@100").to_dicts()}
    assert len(of_dataset) == 20 + 12 and of_dataset["cqadupstack"]["queries"] == 12
    assert "q2 Q0" in runs["bm25"][parts.index(tmp_path / "beir" / "msmarco")].read_text(), "dev is MS MARCO's split"
    assert of_dataset["msmarco"]["value"] == 1 == of_dataset["nfcorpus"]["value"]


def test_judged_passages_that_the_corpus_lacks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "nfcorpus" / "qrels").mkdir(parents=True)
    for path, text in FOLDER.items():
        (tmp_path / "nfcorpus" / path).write_text(text)
    with (tmp_path / "nfcorpus" / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\tp9\t1\nq2\tp9\t1\nq2\tp8\t0\n")
    known = replace(named("nfcorpus"), passages=5, queries=2)
    assert remarks(known, tmp_path / "nfcorpus") == ["2 judged passages are not in corpus.jsonl; nothing can find them"]
    corpus = tmp_path / "nfcorpus" / "corpus.jsonl"
    corpus.write_text('{"title": "", "_id": "p1"}\r\n{"_id": "p\\u0039"}\n{"_id": "p8"}\n')
    assert remarks(replace(known, passages=3), tmp_path / "nfcorpus") == []
    corpus.write_text('{"_id": "p1"}\n{"_id": 7}\n')
    with pytest.raises(UserError, match=r'corpus\.jsonl:2: expected a JSON object with "_id", a string'):
        remarks(known, tmp_path / "nfcorpus")


def test_a_download_that_breaks_off_goes_on(server: Server, tmp_path: Path) -> None:  # noqa: F811
    noise = random.Random(1).randbytes(100_000).hex()
    dataset = served(server, "nfcorpus", zipped("nfcorpus", {**FOLDER, "noise": noise}))
    server.breaks_after = 90_000
    with pytest.raises(UnavailableError, match="cannot be downloaded"):
        install(dataset, tmp_path)
    assert visible(tmp_path) == ["nfcorpus.zip.part"]
    assert install(dataset, tmp_path).is_dir()
    assert server.requests == [None, "bytes=90000-"], "what came is not fetched again"


def test_a_zip_that_is_not_what_its_md5_says(server: Server, tmp_path: Path) -> None:  # noqa: F811
    dataset = replace(served(server, "nfcorpus", zipped("nfcorpus", FOLDER)), md5=named("nfcorpus").md5)
    with pytest.raises(UnavailableError, match=r"is not the declared file: md5 .*, expected a89dba18a62ef92f7d323ec8"):
        install(dataset, tmp_path)
    assert visible(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no zip at all", "nfcorpus.zip: is not a zip file that can be unpacked: File is not a zip file"),
        (zipped("other", FOLDER), "other/corpus.jsonl is not in the folder nfcorpus/"),
        (zipped("nfcorpus", {"../../evil": "x"}), "nfcorpus/../../evil is not in the folder nfcorpus/"),
        (zipped("nfcorpus", {}), "nfcorpus.zip: holds no files"),
    ],
)
def test_zips_that_are_refused_leave_no_folder(
    server: Server,  # noqa: F811
    tmp_path: Path,
    content: bytes,
    sentence: str,
) -> None:
    with pytest.raises(UserError) as error:
        install(served(server, "nfcorpus", content), tmp_path / "beir")
    assert sentence in str(error.value)
    assert "nfcorpus" not in visible(tmp_path / "beir") and not (tmp_path / "evil").exists()


def test_a_disk_that_fills_leaves_nothing_half_installed(
    server: Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = served(server, "nfcorpus", zipped("nfcorpus", FOLDER))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("builder.sources.beir_download._unpack", full)
        with pytest.raises(UserError, match="nfcorpus: cannot be written: No space left on device"):
            install(dataset, tmp_path)
    assert visible(tmp_path) == ["nfcorpus.zip"]
    assert install(dataset, tmp_path).is_dir() and len(server.requests) == 1, "the verified zip serves again"


def test_processes_at_once_download_it_once(server: Server, tmp_path: Path) -> None:  # noqa: F811
    dataset = served(server, "scifact", zipped("scifact", FOLDER))
    server.slow = 0.5
    with multiprocessing.get_context("fork").Pool(3) as pool:
        folders = pool.starmap(install, [(dataset, tmp_path)] * 3)
    assert folders == [tmp_path / "scifact"] * 3 and len(server.requests) == 1


def test_the_list_and_what_cannot_be_downloaded(command: Run, tmp_path: Path) -> None:
    done = command("builder", "beir")
    assert done.returncode == 0 and "nfcorpus" in done.stdout and "14,914,602" in done.stdout
    for name, sentence in (("bioasq", "BEIR does not distribute it"), ("nf", "BEIR has no dataset 'nf'")):
        done = command("builder", "beir", name, "--out", tmp_path / "beir")
        assert done.returncode == 2 and sentence in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "beir").exists()


def test_a_folder_of_another_dataset_is_left_as_it_is(command: Run, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    done = command("builder", "beir", "own", "--out", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'own'}\n")


def test_a_folder_that_the_user_has_needs_no_download(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="bioasq: No download"):
        install(named("bioasq"), tmp_path)
    (tmp_path / "bioasq").mkdir()
    assert install(named("bioasq"), tmp_path) == tmp_path / "bioasq"
    assert visible(tmp_path) == ["bioasq"], "no lock either: the folder may be read-only"
