"""Overlap of datasets: counts on the disk against those in memory, and losses beside the similarity of queries."""

import json
import random
from pathlib import Path

import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.pages.page import result_page
from eval_kit.protocols.overlap import overlap
from eval_kit.stats import words_on_disk
from eval_kit.stats.losses import correlations
from eval_kit.stats.similarity import weighted_jaccard

WORDS = [f"word{number}" for number in range(40)]


def texts(number: int, seed: int, vocabulary: list[str] = WORDS) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(vocabulary, k=draw.randint(0, 12))) for _ in range(number)]


def beir(folder: Path, passages: list[str], queries: list[str], split: str = "test") -> Path:
    (folder / "qrels").mkdir(parents=True)
    corpus = [json.dumps({"_id": f"p{i}", "title": "", "text": text}) for i, text in enumerate(passages)]
    (folder / "corpus.jsonl").write_text("\n".join(corpus) + "\n")
    lines = [json.dumps({"_id": f"q{i}", "text": text}) for i, text in enumerate(queries)]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    judged = "".join(f"q{i}\tp0\t1\n" for i in range(len(queries)))
    (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


def test_counts_on_the_disk_are_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_on_disk, "CHARACTERS", 100)  # many batches, written several times
    monkeypatch.setattr(words_on_disk, "MOST_WORDS", 50)
    sides = texts(60, 1), texts(50, 2, WORDS[10:])
    counted = [words_on_disk.count(iter(side), tmp_path / str(number)) for number, side in enumerate(sides)]
    assert [words.texts for words in counted] == [60, 50]
    assert len(list((tmp_path / "0").iterdir())) > words_on_disk.PARTS
    assert words_on_disk.jaccard(*counted) == weighted_jaccard(*map(pl.Series, sides))
    assert words_on_disk.jaccard(counted[0], counted[0]) == 1
    with pytest.raises(ValueError, match="without any word"):
        words_on_disk.jaccard(counted[0], words_on_disk.count([], tmp_path / "none"))


@pytest.fixture
def suite(tmp_path: Path) -> list[Path]:
    """MS MARCO and three datasets whose queries are ever less like its training queries."""
    folders = []
    for number, name in enumerate(("nfcorpus", "fiqa", "quora")):
        own = WORDS[10 * number :]
        folders.append(beir(tmp_path / name, texts(9, number, own), ["word39 word38", *texts(5, 10 + number, own)]))
    msmarco = beir(tmp_path / "msmarco", texts(9, 7), ["word1 word2", *texts(9, 8)], "train")
    (msmarco / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp1\t1\n")
    return [*folders, msmarco]


def suite_json(scores: dict[str, float], path: Path) -> Path:
    entries = [
        {
            "provenance": {"release": {"version": dataset}},
            "measures": [{"measure": "nDCG@10", "run": f"mine.{dataset}", "value": value}],
        }
        for dataset, value in scores.items()
    ]
    path.write_text(json.dumps({"systems": {"mine": {"scores": entries}}}))
    return path


def test_losses_stand_beside_the_similarity_of_queries(suite: list[Path], tmp_path: Path) -> None:
    scores = {"msmarco": 0.5, "nfcorpus": 0.4, "fiqa": 0.3, "quora": 0.6}
    results = overlap(suite, [suite_json(scores, tmp_path / "suite.json")])
    assert results.datasets["dataset"].to_list() == ["nfcorpus", "fiqa", "quora", "msmarco"]
    assert results.datasets["queries"].to_list() == [6, 6, 6, 1]
    training = pl.Series(["word1 word2", *texts(9, 8)])
    assert results.datasets["jaccard"][1] == weighted_jaccard(
        training, pl.Series(["word39 word38", *texts(5, 11, WORDS[10:])])
    )
    assert results.passages.height == 6
    [quora] = results.passages.filter(dataset="nfcorpus", other="quora")["jaccard"]
    assert quora == weighted_jaccard(pl.Series(texts(9, 0)), pl.Series(texts(9, 2, WORDS[20:])))
    mine = results.losses.filter(system="mine")
    assert dict(mine.select("dataset", "rel_loss").iter_rows()) == pytest.approx(
        {"nfcorpus": 0.2, "fiqa": 0.4, "quora": -0.2}
    )
    tas_b = dict(results.losses.filter(system="tas-b (BEIR)").select("dataset", "rel_loss").iter_rows())
    assert tas_b["nfcorpus"] == pytest.approx(1 - 0.319 / 0.408), "the paper's Table 2"
    expected = correlations(results.datasets["jaccard"][:3], [0.2, 0.4, -0.2])["spearman"].estimate.value
    assert results.correlations["mine"]["spearman"].estimate.value == pytest.approx(expected)
    page = result_page(results)
    assert page.count('class="heat"') == 12 and "nfcorpus and fiqa" in page and "mine on quora: -20.0%" in page


def test_by_the_command_line(suite: list[Path], command, tmp_path: Path) -> None:
    training = tmp_path / "training.tsv"
    training.write_text("1\tword1 word2\n")
    done = command("eval_kit", "overlap", *suite[:3], "--training", training, "--json", tmp_path / "overlap.json")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["passages", "of", "1", "2", "3"] in lines and any(line[:3] == ["bm25", "(BEIR)", "3"] for line in lines)
    document = json.loads((tmp_path / "overlap.json").read_text())
    assert len(document["passages"]) == 3 and len(document["losses"]) == 30
    (suite[0] / "corpus.jsonl").write_text('{"_id": "p1", "text": " "}\n')
    done = command("eval_kit", "overlap", *suite[:3])
    assert done.returncode == 2 and "corpus.jsonl: its passages have no words" in done.stderr


def test_without_training_queries_passages_are_compared(suite: list[Path], tmp_path: Path) -> None:
    results = overlap(suite[:2])
    assert results.datasets["jaccard"].to_list() == [None, None] and results.losses.is_empty()
    assert result_page(results).count("<figure>") == 1
    with pytest.raises(UserError, match="two datasets are called fiqa"):
        overlap([suite[1], suite[1]])
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(UserError, match=r"empty\.tsv: holds no queries"):
        overlap(suite, training=tmp_path / "empty.tsv")
    (tmp_path / "wrong.json").write_text('{"systems": 1}')
    with pytest.raises(UserError, match=r"wrong\.json: is not in the format of beir --json"):
        overlap(suite, [tmp_path / "wrong.json"])
