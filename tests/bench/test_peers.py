"""The bench of training at a tiny size: ours did the same work as its peer."""

from pathlib import Path

import pytest

from bench import training

pytestmark = pytest.mark.slow


def test_our_training_does_the_peers_work(tmp_path: Path):
    measured = training.measured(tmp_path, queries=300, steps=3, repeats=1)["training"]
    assert list(measured) == ["biencoder", "splade", "colbert", "monobert"]
    for figures in measured.values():
        assert figures["largest_weight_difference"] == 0
        assert all(figures[name]["samples_per_second"] > 0 for name in ("ours", "peer"))
        assert set(figures["overhead"]) == {"wall_s", "cpu_s"}
