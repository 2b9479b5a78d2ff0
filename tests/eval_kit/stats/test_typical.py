"""What clusters are about: by hand, whatever the order of the queries, and for the authors' topics."""

import math

import polars as pl
import pytest

from eval_kit.shifts import TOPICS, named
from eval_kit.stats.typical import about, topics

TEXTS = {
    "c0": ["what is apple pie", "cost of an Apple pie", "an apple is cheap", "what an apple"],
    "c1": ["what is a car", "oil of a car engine", "a car engine is cheap", "what engine"],
}


def queries() -> pl.DataFrame:
    rows = [(f"{cluster}{i}", text, cluster) for cluster, texts in TEXTS.items() for i, text in enumerate(texts)]
    return pl.DataFrame(rows, ["query_id", "text", "cluster"], orient="row")


def by_hand(word: str) -> float:
    """The z-score of a word in c0 (Monroe et al. 2008, equations 15, 16, 20 and 22), all queries being the prior."""
    words = {
        cluster: [w for text in texts for w in sorted(set(text.lower().split()))] for cluster, texts in TEXTS.items()
    }
    inside, outside = (words[cluster].count(word) for cluster in ("c0", "c1"))
    prior, total = inside + outside, sum(map(len, words.values()))
    a = (inside + prior) / (len(words["c0"]) + total - inside - prior)
    b = (outside + prior) / (len(words["c1"]) + total - outside - prior)
    return (math.log(a) - math.log(b)) / math.sqrt(1 / (inside + prior) + 1 / (outside + prior))


def test_typical_words_are_those_of_the_formula():
    first, second = topics(queries())
    every = {word for texts in TEXTS.values() for text in texts for word in text.lower().split()}
    present = {word for text in TEXTS["c0"] for word in text.lower().split()}
    expected = sorted(present, key=lambda word: (-round(by_hand(word), 9), word))
    assert first.terms == expected[:10] and first.terms[:3] == ["apple", "an", "pie"]
    assert (first.cluster, first.queries, second.cluster, second.queries) == ("c0", 4, "c1", 4)
    assert set(second.terms) <= every and {"car", "engine", "a"} == set(second.terms[:3])
    assert first.examples[0] == "cost of an Apple pie"
    assert all(len(text.split()) >= 4 for topic in (first, second) for text in topic.examples)


def test_the_order_of_queries_does_not_matter():
    assert topics(queries()) == topics(queries().sample(fraction=1, shuffle=True, seed=5))


@pytest.mark.parametrize(
    ("shift", "part", "word"), [("topic", 1, "weather"), ("topic", 3, "symptoms"), ("resttest", 4, "cost")]
)
def test_the_authors_topics(published_release, shift, part, word):
    [rows] = about(published_release)[shift].groups
    assert len(rows) == 5
    assert word in rows[part][2].split(", ")
    assert rows[3][0] == ("c3 (Medical Treatments)" if shift == "topic" else "b4")
    assert rows[part][3].count("; ") == 2


def test_only_the_published_topics_have_the_authors_names(published_release, mini_release):
    pytest.importorskip("datasets")
    assert {named(part, mini_release.manifest) for part in TOPICS} == {*TOPICS}
    card_data = pytest.importorskip("builder.card").card_data
    for release, said in ((published_release, True), (mini_release, False)):
        described = {
            entry["config_name"]: entry["description"]
            for entry in card_data(release.folder, release.manifest)["configs"]
        }
        assert ("c4 (Biology/Physics)" in described["topic"]) == said
        assert "Biology" not in described["wh"]
