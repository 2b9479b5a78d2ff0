"""Similarities against golden values, a Counter and brute force over all pairs."""

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.errors import UserError
from eval_kit.protocols.similarity import similarity
from eval_kit.release import Release
from eval_kit.release.reference import published_cells
from eval_kit.stats.losses import spearman
from eval_kit.stats.similarity import by_cluster, mean_dot, weighted_jaccard, word_counts
from eval_kit.stats.similarity import test_and_training as queries_compared  # a name that pytest would collect
from eval_kit.stats.vectors import Vectors

CLUSTERS = {"topic": ["c0", "c1", "c2", "c3", "c4"], "wh": ["wha", "how", "who"], "length": ["short", "long"]}
GOLDEN = {"topic": [0.2984, 0.2449, 0.3388, 0.3005, 0.4268], "wh": [0.2793, 0.2261, 0.2762], "length": [0.3225, 0.3225]}

words = st.sampled_from(["a", "B", "b", "the", "The", "été", "ÉTÉ", "x-ray", "1", "?", "\x1c", "\x1f\u2003", "\u200b"])
blanks = st.sampled_from([" ", "  ", "\t", "\u00a0", " \r\n"])
phrases = st.lists(st.tuples(words, blanks).map("".join), max_size=6).map("".join)
texts = st.lists(phrases, max_size=6).map(lambda lines: [*lines, "word"])


def reference(source, target):
    """The definition, word by word."""
    counts = [Counter(word for text in side for word in text.lower().split()) for side in (source, target)]
    shares = [{word: count / sum(side.values()) for word, count in side.items()} for side in counts]
    both = [(shares[0].get(word, 0), shares[1].get(word, 0)) for word in {*shares[0], *shares[1]}]
    return sum(map(min, both)) / sum(map(max, both))


def series(lines):
    return pl.Series("text", lines, pl.String)


def random_vectors(query_ids, dimensions=7, seed=0):
    ids = query_ids.unique(maintain_order=True)
    values = np.random.default_rng(seed).normal(size=(len(ids), dimensions)).astype(np.float32)
    return Vectors("random", ids, values)


# ---------------------------------------------------------------- words


def jaccard(source: pl.Series, target: pl.Series) -> float:
    return weighted_jaccard(word_counts(source), word_counts(target))


@settings(max_examples=30, deadline=None)
@given(texts, texts, st.randoms())
def test_jaccard_is_its_definition(source, target, random):
    found = jaccard(series(source), series(target))
    assert found == pytest.approx(reference(source, target))
    assert found == jaccard(series(target), series(source))
    assert found == jaccard(series(random.sample(source, len(source))), series(target))
    assert found == jaccard(series(source * 3), series(target))
    assert jaccard(series(source), series(source)) == 1
    other = ["z" + text.replace(" ", " z") for text in ("one two", "three")]
    assert jaccard(series(source), series(other)) == 0


def test_texts_without_words_are_refused():
    with pytest.raises(ValueError, match="without any word"):
        jaccard(series([" ", ""]), series(["word"]))


def test_golden_jaccard_of_the_published_test_queries(published_release: Release):
    """This partial release has no training queries; the paper's whole topic c0 has 0.333."""
    clusters = similarity(published_release).to_polars()
    assert clusters.columns == ["shift", "cluster", "queries", "n", "others", "jaccard"]
    assert set(clusters["queries"]) == {"test"}
    for shift, names in CLUSTERS.items():
        of_shift = clusters.filter(shift=shift)
        assert of_shift["cluster"].to_list() == names
        assert of_shift["jaccard"].round(4).to_list() == GOLDEN[shift]
        assert (of_shift["n"] + of_shift["others"]).n_unique() == 1


OF_THE_AUTHORS = [0.3334, 0.2632, 0.3686, 0.3217, 0.4701]
"""Their notebook's similarities of the topics, whose training queries the release may lack."""
FIGURE_3 = {
    "biencoder": (-0.85, -0.40, -0.77, -0.7),
    "splade": (-0.88, -0.90, -0.84, -1.0),
    "colbert": (-0.90, -0.70, -0.84, -0.9),
    "monobert": (-0.81, -0.30, -0.32, -0.5),
}
"""Over topics and wh words, topics, all three shifts, and topics by the authors' similarities: docs/protocol.md."""
P_OF_FIVE = {-1.0: 2 / 120, -0.9: 10 / 120, -0.7: 28 / 120, -0.5: 54 / 120}


@pytest.mark.parametrize("system", FIGURE_3)
def test_published_losses_follow_similarity(system: str):
    losses = {}
    for cell in [cell for table in ("ecir2023-table2", "ecir2023-table3") for cell in published_cells(table)]:
        if (cell["system"], cell["measure"], cell["figure"]) == (system, "RR@10", "loss"):
            losses[cell["test_set"]] = float(cell["value"])
    cases = [(shifts, GOLDEN) for shifts in (("topic", "wh"), ("topic",), tuple(CLUSTERS))]
    cases.append((("topic",), {"topic": OF_THE_AUTHORS}))
    for (shifts, similarities), expected in zip(cases, FIGURE_3[system], strict=True):
        names = [f"{shift}.{cluster}" for shift in shifts for cluster in CLUSTERS[shift]]
        of_shifts = [value for shift in shifts for value in similarities[shift]]
        found = spearman([losses[name] for name in names], of_shifts, resamples=10)
        assert found.value == pytest.approx(expected, abs=0.005)
        assert len(names) != 8 or found.p < 0.03
        assert len(names) != 5 or found.p == pytest.approx(P_OF_FIVE.get(expected, found.p))


# ---------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    ("n", "m", "dtype"), [(1, 1, np.float64), (40, 25, np.float16), (40, 25, np.float64), (9_000, 3, np.float32)]
)
def test_means_are_those_over_all_pairs(n, m, dtype):
    rng = np.random.default_rng(n)
    source, target = rng.normal(1, 2, (n, 5)).astype(dtype), rng.normal(-1, 1, (m, 5)).astype(dtype)
    one, other = source.astype(np.float64), target.astype(np.float64)
    assert mean_dot(source, target) == pytest.approx((one @ other.T).mean(axis=1))
    order = rng.permutation(m)
    assert mean_dot(source, target[order]) == pytest.approx(mean_dot(source, target))


def test_vectors_that_cannot_be_compared():
    three, four = np.ones((2, 3)), np.ones((2, 4))
    with pytest.raises(UserError, match="of 3 and of 4 dimensions"):
        mean_dot(three, four)
    assert mean_dot(three, np.zeros((1, 3))).tolist() == [0, 0]


@pytest.mark.parametrize("shift", CLUSTERS)
def test_the_cosines_of_a_release_are_those_over_all_pairs(mini_release: Release, shift):
    splits = ["test", "train"]
    queries = pl.concat(mini_release.table(shift, split) for split in splits)
    vectors = random_vectors(queries["query_id"])
    table = by_cluster(mini_release, shift, vectors, splits)
    assert table.columns == ["cluster", "n", "others", "jaccard", "cosine"]
    assert table["cluster"].to_list() == CLUSTERS[shift]
    with pytest.raises(UserError, match="zeros"):
        by_cluster(mini_release, shift, Vectors("zero", vectors.query_ids, 0 * vectors.values), splits)
    for cluster, n, count, jaccard, cosine in table.iter_rows():
        inside, outside = queries.filter(cluster=cluster), queries.filter(pl.col("cluster") != cluster)
        assert (n, count) == (inside.height, outside.height)
        assert jaccard == weighted_jaccard(word_counts(inside["text"]), word_counts(outside["text"]))
        assert jaccard == pytest.approx(reference(inside["text"], outside["text"]))
        one, other = (vectors.of(side["query_id"]).astype(np.float64) for side in (inside, outside))
        lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(other, axis=1)
        assert cosine == pytest.approx((one @ other.T / lengths).mean())


def test_what_a_release_cannot_answer(mini_release: Release, published_release: Release):
    with pytest.raises(UserError, match="is not a shift with clusters"):
        by_cluster(mini_release, "resttest", splits=["dev"])
    with pytest.raises(UserError, match="no colour/test"):
        by_cluster(mini_release, "colour")
    vectors = random_vectors(mini_release.table("topic", "test")["query_id"])
    with pytest.raises(UserError, match="no cluster c9"):
        queries_compared(mini_release, "topic", "c9")
    with pytest.raises(UserError, match="lacks vectors of"):
        vectors.of(queries_compared(mini_release, "topic", "c0")[1]["query_id"])
    with pytest.raises(UserError, match="is a partial release, without topic/train"):
        queries_compared(published_release, "topic", "c0")
