"""BM25 by Lucene: on the mini collection, and on real passages held against BM25's own formula."""

import math
import os
from collections import Counter
from pathlib import Path

import clients
import pytest

from eval_kit.errors import UserError
from eval_kit.languages import LANGUAGES
from eval_kit.models.bm25 import Bm25
from eval_kit.search import bm25
from eval_kit.search.retriever import lines

B, K1 = 0.4, 0.9


DOCUMENTS = {
    "1": "a query about apples and pears",
    "2": "apples apples apples and nothing but apples in this rather long passage about the fruit of trees",
    "3": "pears",
    "4": "something else entirely with neither word",
}


def formula(query: str) -> dict[str, float]:
    """Lucene's BM25 (Robertson and Sparck Jones 1976; idf as log(1 + (N - n + 0.5) / (n + 0.5)))."""
    stemmed = {"apples": "appl", "pears": "pear"}
    stop = {"a", "and", "but", "in", "this", "the", "of", "with"}
    texts = {
        one: [stemmed.get(word, word) for word in text.split() if word not in stop] for one, text in DOCUMENTS.items()
    }
    average = sum(map(len, texts.values())) / len(texts)
    scores = {}
    for one, words in texts.items():
        counts = Counter(words)
        total = 0.0
        for term in query.split():
            holding = sum(stemmed[term] in other for other in texts.values())
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            frequency = counts[stemmed[term]]
            total += idf * frequency / (frequency + K1 * (1 - B + B * len(words) / average))
        if total:
            scores[one] = total
    return scores


def test_scores_are_those_of_the_formula(tmp_path: Path):
    queries = {"q1": "apples", "q2": "pears", "q3": "apples pears"}
    long = {"long": "apples " + " ".join(f"unseen{number}" for number in range(2_000))}
    bm25.index(DOCUMENTS.items(), tmp_path / "index")
    found: dict[str, dict[str, float]] = {}
    for query, passage, rank, value in lines(bm25.search((queries | long).items(), tmp_path / "index", depth=3)):
        assert rank == len(found.setdefault(query, {})) + 1
        found[query][passage] = value
    for query, text in queries.items():
        expected = formula(text)
        assert list(found[query]) == sorted(expected, key=expected.__getitem__, reverse=True)
        for passage, value in expected.items():
            assert found[query][passage] == pytest.approx(value, abs=1e-4)  # Anserini rounds to 4 decimals
    assert found["long"] == found["q1"]


SENTENCES = {
    "de": ({"1": "Die Häuser sind alt und das ist gut", "2": "Der Hund ist nicht von der Straße"}, "Haus"),
    "fr": ({"1": "Les chevaux sont dans le pré", "2": "Une maison est au bord du lac"}, "cheval"),
    "zh": ({"1": "黑豹队的防守丢了多少分", "2": "守护者防线在海边"}, "防守"),
    "ja": ({"1": "東京の人口はどれくらいですか", "2": "京都の寺はきれいです"}, "東京"),
    "th": ({"1": "ประเทศไทยมีอาหารอร่อย", "2": "กรุงเทพเป็นเมืองหลวง"}, "อาหาร"),
    "km": ({"1": "ភ្នំពេញជារាជធានីនៃកម្ពុជា", "2": "ខ្ញុំស្រឡាញ់អ្នក"}, "រាជធានី"),
}


@pytest.mark.parametrize("language", SENTENCES)
def test_the_analyser_is_that_of_the_passages_language(language: str, tmp_path: Path):
    """Stems and pairs of characters that the English analyser does not know; it finds nothing, or both."""
    documents, query = SENTENCES[language]
    with pytest.warns(UserWarning, match=f"likely language, {language}"):
        bm25.index(documents.items(), tmp_path / "own")
    bm25.index(documents.items(), tmp_path / "english", language="en")
    found = {name: dict(bm25.search([("q", query)], tmp_path / name))["q"] for name in ("own", "english")}
    assert [passage for passage, _ in found["own"]] == ["1"]
    assert len(found["english"]) != 1
    assert not (tmp_path / "english" / bm25.ANALYSER).exists()


def test_every_language_can_be_indexed(tmp_path: Path):
    for language in LANGUAGES:
        bm25.index([("1", "alpha"), ("2", "beta")], tmp_path / language, language=language)
        assert [passage for passage, _ in dict(bm25.search([("q", "alpha")], tmp_path / language))["q"]] == ["1"]


def test_a_language_without_an_analyser_is_said_and_searched(tmp_path: Path):
    with pytest.warns(UserWarning, match="language of"):
        bm25.index([("1", "Ποια είναι η πρωτεύουσα της Ελλάδας"), ("2", "Η Αθήνα")], tmp_path / "index")
    assert dict(bm25.search([("q", "Αθήνα")], tmp_path / "index"))["q"]
    with pytest.raises(UserError, match="no analyser for 'xx'"):
        Bm25(language="xx")


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from eval_kit.search import bm25
from eval_kit.errors import reporting
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with reporting("baselines"):
    bm25.index(((f"p{n}", f"word{n} and {n * n} and {n**3}") for n in range(5_000)), Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_full_disk_is_one_sentence(tmp_path: Path):
    """Lucene itself only logs it."""
    done = clients.run(["-c", FULL_DISK, str(tmp_path / "index")], os.environ, None)
    assert done.returncode == 2
    said = f"baselines: Lucene wrote only 0 of 5,000 passages to {tmp_path}/index. Check that the disk is not full"
    assert done.stderr.splitlines()[-1] == said
