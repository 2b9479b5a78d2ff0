"""The bench of the baselines at tiny sizes: every figure is there, and ours did the same work as its peer."""

from pathlib import Path

import pytest

from bench import baselines_search, baselines_training

OVERHEADS = {"wall_s", "cpu_s"}


def test_our_training_and_encoding_do_the_peers_work(tmp_path: Path):
    measured = baselines_training.measure(tmp_path, quick=True, repeats=1)
    assert list(measured["training"]) == ["biencoder", "splade", "colbert", "monobert"]
    assert list(measured["encoding"]) == ["biencoder", "splade", "colbert"]
    for one in measured["training"].values():
        assert one["largest_weight_difference"] == 0
        assert all(one[who]["samples_per_second"] > 0 for who in ("ours", "peer"))
        assert set(one["overhead"]) == OVERHEADS
    for one in measured["encoding"].values():
        assert all(one[who]["passages_per_second"] > 0 for who in ("ours", "peer"))


def test_our_search_finds_what_the_peers_find(tmp_path: Path):
    measured = baselines_search.synthetic(tmp_path, repeats=1, count=9_000)
    assert [row["name"] for row in measured["rows"]] == ["dense flat", "dense torch"]
    for row in measured["rows"]:
        assert row["same_top_10"] == 1
        assert row["bytes_per_passage"]["peer"] == 4 * baselines_search.DIMENSIONS
        assert row["bytes_per_passage"]["ours"] == pytest.approx(4 * baselines_search.DIMENSIONS, rel=0.01)
        for way in ("one_at_a_time", "in_one_call"):
            assert all(row[way][who]["ms"] > 0 for who in ("ours", "peer"))
