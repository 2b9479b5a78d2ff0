"""The benches with a peer at tiny sizes: ours did the same work as its peer."""

from pathlib import Path

import pytest

from bench import search, training

pytestmark = pytest.mark.slow


def test_our_training_does_the_peers_work(tmp_path: Path):
    measured = training.measured(tmp_path, queries=300, steps=3, repeats=1)["training"]
    assert list(measured) == ["biencoder", "splade", "colbert", "monobert"]
    for figures in measured.values():
        assert figures["largest_weight_difference"] == 0
        assert all(figures[name]["samples_per_second"] > 0 for name in ("ours", "peer"))
        assert set(figures["overhead"]) == {"wall_s", "cpu_s"}


def test_our_search_finds_what_the_peer_finds(tmp_path: Path):
    measured = search.measured(tmp_path, passages=9_000, repeats=1)
    assert measured["same_top_10"] == 1
    assert measured["bytes_per_passage"] == pytest.approx(4 * search.DIMENSIONS, rel=0.01)
    for way in ("one_at_a_time", "in_one_call"):
        assert all(measured[way][name]["ms"] > 0 for name in ("ours", "peer"))
