"""Overlap of collections: counts on the disk against those in memory, and the matrix."""

import json
import random
from pathlib import Path

import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.pages.page import result_page
from eval_kit.protocols import overlap as words_on_disk
from eval_kit.protocols.overlap import overlap
from eval_kit.stats.similarity import weighted_jaccard

WORDS = [f"word{number}" for number in range(40)]


def texts(number: int, seed: int, vocabulary: list[str] = WORDS) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(vocabulary, k=draw.randint(0, 12))) for _ in range(number)]


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
    """Three collections, each with fewer of the words."""
    folders = []
    for number, name in enumerate(("nfcorpus", "fiqa", "quora")):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        passages = texts(9, number, WORDS[10 * number :])
        rows = [{"_id": f"p{i}", "title": "", "text": text} for i, text in enumerate(passages)]
        (folders[-1] / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folders


def test_passages_are_compared(suite: list[Path]) -> None:
    results = overlap(suite)
    assert results.collections["collection"].to_list() == ["nfcorpus", "fiqa", "quora"]
    assert results.to_polars().height == 3
    [quora] = results.pairs.filter(collection="nfcorpus", other="quora")["jaccard"]
    assert quora == weighted_jaccard(pl.Series(texts(9, 0)), pl.Series(texts(9, 2, WORDS[20:])))
    page = result_page(results)
    assert page.count("<figure>") == 1 and page.count('class="heat"') == 6 and "nfcorpus and fiqa" in page
    with pytest.raises(UserError, match="two collections are called fiqa"):
        overlap([suite[1], suite[1]])
    with pytest.raises(UserError, match="name two collections or more"):
        overlap(suite[:1])


def test_by_the_command_line(suite: list[Path], command, tmp_path: Path) -> None:
    folders = [option for folder in suite for option in ("--collection", folder)]
    done = command("eval_kit", "similarity", *folders, "--json", tmp_path / "overlap.json")
    assert done.returncode == 0, done.stderr
    assert ["passages", "of", "1", "2", "3"] in [line.split() for line in done.stdout.splitlines()]
    assert len(json.loads((tmp_path / "overlap.json").read_text())["rows"]) == 3
    (suite[0] / "corpus.jsonl").write_text('{"_id": "p1", "text": " "}\n')
    done = command("eval_kit", "similarity", *folders)
    assert done.returncode == 2 and "corpus.jsonl: its passages have no words" in done.stderr
