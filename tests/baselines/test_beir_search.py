"""``baselines beir``: several systems over several datasets, resumed, and scored as one suite."""

import json
import os
from pathlib import Path

import clients
import pytest
from tiny_checkpoints import tiny

from baselines.beir import folders, over_fields, passages, search
from eval_kit.errors import UserError
from eval_kit.files.beir import judged_queries
from eval_kit.models.cross import Cross
from tests.beir_folders import beir_folder

PASSAGES = {"p1": "a red apple", "p2": "a green pear", "p3": "blue plums and apples", "p4": "nothing at all"}
QUERIES = {"q1": "red apple", "q2": "green pear", "q3": "zebra"}


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """``nfcorpus`` and a CQADupStack with two of its folders."""
    texts = {**PASSAGES, "empty": "", "megabyte": "noise " * 170_000}
    rows = [{"_id": passage, "title": "", "text": text} for passage, text in texts.items()]
    for name in ("nfcorpus", "cqadupstack/android", "cqadupstack/tex"):
        folder = beir_folder(tmp_path / "beir" / name, rows, QUERIES, [("q1", "p1"), ("q2", "p2"), ("q3", "p4")])
        corpus = (folder / "corpus.jsonl").read_bytes()
        (folder / "corpus.jsonl").write_bytes(corpus.replace(b"\n", b"\r\n"))
    return tmp_path / "beir"


@pytest.mark.slow
def test_a_suite_is_searched_once_and_scored_beside_the_paper(beir: Path, command, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "tas-b.nfcorpus.trec").write_text("q1 Q0 p1 1 2 t\nq2 Q0 p3 1 2 t\nq2 Q0 p2 2 1 t\n")
    given = ("baselines", "beir", "bm25", "tas-b", "--folder", beir, "--dataset", "nfcorpus", "--out", runs)
    done = command(*given, "--json", tmp_path / "suite.json")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    # bm25: two of three queries perfect, one without a hit; tas-b: 1, 1/log2(3) and 0
    assert ["nfcorpus", "0.667", "0.325", "0.544", "0.319"] in lines
    assert ["Avg.", "vs.", "bm25", "-18.5%"] in lines
    assert "bm25: nothing was found for 1 queries of nfcorpus (scored 0; without them" in done.stdout
    document = json.loads((tmp_path / "suite.json").read_text())
    assert list(dict.fromkeys(row["system"] for row in document["rows"])) == ["bm25", "tas-b"]
    assert document["measured"]["bm25.nfcorpus"]["index_bytes"] > 0
    assert document["measured"]["bm25.nfcorpus"]["latency_ms"] > 0
    assert not (runs / "bm25.nfcorpus.searching").exists()
    before = (runs / "bm25.nfcorpus.trec").stat().st_mtime_ns
    (beir / "nfcorpus" / "corpus.jsonl").unlink()  # nothing would search it again
    again = search(["bm25", "tas-b"], [beir / "nfcorpus"], runs, 1000)
    assert again["bm25"] == [runs / "bm25.nfcorpus.trec"] and again["bm25"][0].stat().st_mtime_ns == before
    with pytest.raises(UserError, match=r"deepct is neither bm25 nor .*there is no run .*deepct.nfcorpus.trec"):
        search(["deepct"], [beir / "nfcorpus"], runs, 1000)


@pytest.mark.slow
def test_two_suites_at_once_search_each_run_once(beir: Path, tmp_path: Path) -> None:
    line = ["-m", "baselines", "beir", "bm25", "--folder", beir, "--dataset", "nfcorpus", "--out", tmp_path / "runs"]
    files = [tmp_path / "0.json", tmp_path / "1.json"]
    both = [clients.Running([*line, "--json", file], os.environ, neural=True) for file in files]
    assert [process.wait().returncode for process in both] == [0, 0]
    first, second = (json.loads(file.read_text()) for file in files)
    assert first == second and first["measured"]["bm25.nfcorpus"]["latency_ms"] > 0
    names = sorted(path.name for path in (tmp_path / "runs").glob("[!.]*"))
    assert names == [f"bm25.nfcorpus.{ending}" for ending in ("json", "training.json", "trec")]


@pytest.mark.slow
def test_latency_and_index_size_stand_beside_table_3(beir: Path, command, tmp_path: Path) -> None:
    given = ("baselines", "beir", "bm25", "bm25-multifield", "--folder", beir, "--dataset", "nfcorpus", "--latency", 3)
    done = command(*given, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("bm25")]
    assert [row[:2] for row in rows] == [["bm25", "3"], ["bm25-multifield", "3"]]
    assert all(float(row[2]) > 0 and (row[3], row[5]) == ("20", "0.4") for row in rows)
    before = (tmp_path / "out" / "bm25.nfcorpus.3.json").read_text()
    (beir / "nfcorpus" / "corpus.jsonl").unlink()  # nothing would measure it again
    assert command(*given, "--out", tmp_path / "out", "--json", tmp_path / "figures.json").returncode == 0
    figures = json.loads((tmp_path / "figures.json").read_text())[0]["measured"]["bm25"]
    assert figures == json.loads(before) and (figures["passages"], figures["device"]) == (3, "cpu")
    assert sorted(path.suffix for path in (tmp_path / "out").glob("[!.]*")) == [".json", ".json"]


@pytest.fixture
def fields(tmp_path: Path) -> Path:
    """Passages of three fields; BM25 over them as one ranks "zebra" otherwise than over each apart."""
    rows = [
        {"_id": "title", "title": "zebra", "text": "noise " * 200},
        {"_id": "text", "title": "noise", "text": "zebra " + "noise " * 100},
        {"_id": "written", "title": "noise", "text": "noise " * 5, "queries": "what is a zebra"},
        {"_id": "none", "title": "noise", "text": "noise " * 5},
    ]
    return beir_folder(tmp_path / "fields", rows, {"q": "zebra"}, [("q", "text")])


def passages_of(run: Path) -> list[str]:
    return [line.split()[2] for line in run.read_text().splitlines()]


def test_titles_and_written_queries_are_fields_of_their_own(fields: Path, tmp_path: Path) -> None:
    runs = search(["bm25", "bm25-multifield"], [fields], tmp_path / "runs", 10)
    assert [passages_of(run) for [run] in runs.values()] == [["text", "title"], ["title", "text", "written"]]


def test_a_cross_encoder_re_ranks_what_bm25_over_the_fields_finds(fields: Path, tmp_path: Path) -> None:
    cross = over_fields(Cross(str(tiny("cross")), candidates=1), fields)
    cross.index(passages(fields), tmp_path / "index")
    [(query, hits)] = cross.search(judged_queries(fields), tmp_path / "index")
    assert (query, [passage for passage, _ in hits]) == ("q", ["title"])


def test_folders_are_those_at_hand_and_cqadupstacks_are_twelve(beir: Path, tmp_path: Path) -> None:
    assert folders(beir, ["nfcorpus"]) == [beir / "nfcorpus"]
    with pytest.raises(UserError, match="cqadupstack/english: there is no such folder"):
        folders(beir, [])
    others = "english gaming gis mathematica physics programmers stats unix webmasters wordpress"
    for part in others.split():
        (beir / "cqadupstack" / part).mkdir()
    found = folders(beir, [])
    assert len(found) == 13 and found[-1] == beir / "nfcorpus"
    with pytest.raises(UserError, match="holds no dataset of BEIR"):
        folders(tmp_path, [])


@pytest.mark.slow
def test_bm25_over_title_and_text_is_anserinis_multifield_index(shared: Path, command, tmp_path: Path) -> None:
    """The figures are those of Anserini's reproduction of BEIR (``beir-v1.0.0-nfcorpus.multifield``)."""
    given = ("--folder", shared / "beir", "--dataset", "nfcorpus", "--out", tmp_path, "--json", "-")
    done = command("baselines", "beir", "bm25-multifield", *given)
    assert done.returncode == 0, done.stderr
    values = {row["measure"]: row["value"] for row in json.loads(done.stdout)["rows"]}
    assert values["nDCG@10"] == pytest.approx(0.3254, abs=0.0005)
    assert values["R@100"] == pytest.approx(0.2500, abs=0.0005)
