"""The bench of the baselines at tiny sizes: every figure is there, and ours did the same work as its peer."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baselines import cost
from bench import baselines_gpu, baselines_search, baselines_training
from eval_kit.files.schemas import validate

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


@pytest.mark.parametrize("config", ["paper", "paper-cikm2022"])
def test_throughput_is_what_the_projection_reads(config: str, tmp_path: Path):
    document = baselines_gpu.throughput(tmp_path, replace(baselines_gpu.TINY, config=config), 1.0, lambda _: None)
    validate("throughput", document)
    (tmp_path / "throughput.json").write_text(json.dumps(document))
    systems: dict[str, dict[str, Any]] = cost.measured(tmp_path / "throughput.json", config)["systems"]
    assert list(systems) == ["biencoder", "splade", "colbert", "monobert"]
    for name, one in systems.items():
        assert one["tokens_per_second"] == one["tokens_per_sample"] * one["samples_per_second"]
        assert 0 < one["share_of_peak"] < 1
        assert ("passages_per_second" in one) == (name != "monobert")


def test_without_a_gpu_it_says_so_in_one_sentence(command):
    done = command("bench.baselines", "--gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr == "bench.baselines: --gpu needs a GPU, and torch finds none\n"
