"""The rehearsal, the check of a GPU and the projection, at sizes that a CPU takes seconds for."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from baselines import config
from bench import cost, gpu_check, training
from bench.rehearsal import __main__ as rehearsal
from bench.rehearsal import collection, sizes
from eval_kit.search import cache
from tests.baselines.tiny_cells import tiny_options

BOUNDS = json.loads((cost.RESULTS / "bounds.json").read_text(encoding="utf-8"))


def test_passages_are_as_long_as_ms_marcos_and_the_same_each_time():
    (passages, queries), *_ = collection.blocks(2_000, 100)
    assert passages.height == 2_000
    assert 320 < passages["text"].str.len_bytes().mean() < 380
    assert queries["query_id"].to_list() == [str(number) for number in range(100)]
    texts = dict(passages.iter_rows())
    for _, text, passage in queries.iter_rows():
        assert set(text.split()) <= set(texts[passage].split())
    again, *_ = collection.blocks(2_000, 100)
    assert again[0].equals(passages) and again[1].equals(queries)


RATES = {
    "card": "test",
    "searched": 1_000_000,
    "re-rank": {"pairs_per_second": 1_000},
    **{f"train {system}": {"samples_per_second": 100} for system in (*cost.SEARCHES, "monobert")},
    **{f"encode {system}": {"passages_per_second": 500} for system in cost.SEARCHES},
    **{name: {"queries_per_second": 50} for name in ("dense search", "sparse search")},
    "plaid": {"queries_per_second": 20, "build_s": 60, "passages": 1_000_000},
}
QUERIES = 228_641 + 57_000
"""Of the ten models and the control."""


def test_hours_are_work_divided_by_rates(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cost, "MEASURED_WITHIN", 1)
    monkeypatch.setattr(cost, "ALWAYS_ASSUMED", {"steps": 0.5, "disk_gb_per_second": 2})
    draws = cost.projection(RATES, "paper", 2_000_000)
    assert all(part.min() == part.max() for part in draws.values())
    seconds = {name: part[0] * 3_600 for name, part in draws.items()}
    assert seconds["biencoder: train"] == pytest.approx(11 * 50_000 * 128 / 100)
    assert seconds["biencoder: evaluations"] == pytest.approx(11 * 10 * 1_600 * 101 / 500)
    assert seconds["biencoder: encode"] == pytest.approx(11 * 2_000_000 / 500)
    assert seconds["biencoder: search"] == pytest.approx(QUERIES * 2 / 50)
    assert seconds["colbert: train"] == pytest.approx(11 * 150_000 * 32 / 100)  # to its last step
    assert seconds["colbert: build"] == pytest.approx(11 * 2 * 60)
    assert seconds["colbert: disk"] == pytest.approx(11 * 2e6 * 70 * 128 * 2 * 2.6 / 2e9)
    assert seconds["monobert: search"] == pytest.approx(QUERIES * 1_000 / 1_000)
    assert not {"colbert: evaluations", "monobert: encode", "biencoder: disk"} & {*seconds}
    of_cikm = cost.projection(RATES, "paper-cikm2022", 2_000_000)["colbert: train"][0] * 3_600
    longer = BOUNDS["paper-cikm2022/colbert"]["tflop"] / BOUNDS["paper/colbert"]["tflop"]
    assert of_cikm == pytest.approx(50 * (5 * 426_000 + 6 * 90_000) / 100 * longer)


def test_an_assumed_step_counts_operations_launches_and_compiling(monkeypatch: pytest.MonkeyPatch):
    rates = {"tflops": 100, "launch_us": 5, "waiting": 0.5, "compiled": 0.8}
    monkeypatch.setattr(cost, "MEASURED_WITHIN", 1)
    step = BOUNDS["paper/splade"]
    expected = step["tflop"] / 100 + step["kernels"] * 2.5e-6
    plain = tiny_options("splade", batch_size=128)
    assert cost.step_seconds(rates, "paper", "splade", plain)[0] == pytest.approx(expected)
    assert cost.step_seconds(rates, "paper", "splade", replace(plain, compile=True))[0] == pytest.approx(0.8 * expected)
    half = cost.step_seconds(rates, "day", "splade", replace(plain, batch_size=64))[0]  # a config without own figures
    assert half == pytest.approx(expected / 2)


def test_a_range_holds_95_of_100_draws_and_the_sum_is_narrower_than_the_sum_of_the_ends():
    hours = cost.projection(cost.ASSUMED, "paper", 1_000_000)
    total = sum(hours.values())
    low, high = map(float, cost.span(total).split(" to "))
    assert 0.93 < ((total > low) & (total < high)).mean() < 0.97
    ends = [tuple(map(float, cost.span(part).split(" to "))) for part in hours.values()]
    assert sum(end for end, _ in ends) < low < high < sum(end for _, end in ends)
    assert hours["biencoder: train"] is not hours["splade: train"]


def test_the_largest_rehearsal_says_what_the_cpus_take():
    rehearsed = {
        "1": {"stages": {"texts": {"cpu_s": 7_200}, "score": {"cpu_s": 1}}},
        "0.01": {"stages": {"texts": {"cpu_s": 360}, "candidates": {"cpu_s": 36}}},
    }
    assert cost.on_cpus(rehearsed) == {"texts": (2, "measured"), "candidates": (1, "projected from scale 0.01")}


@pytest.mark.slow
def test_every_part_of_the_gpu_check_works_on_a_cpu(tmp_path: Path):
    document = gpu_check.measure(tmp_path, gpu_check.CPU)
    assert not [part for part in document.values() if isinstance(part, dict) and "error" in part]
    assert document["plaid"]["passages"] == gpu_check.CPU.plaid
    assert document["train biencoder"]["samples_per_second"] > 0


@pytest.mark.slow
def test_a_rehearsal_measures_each_stage_and_does_none_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chosen = ["passages", "texts", "bm25 index", "negatives", "examples"]
    arguments = ["rehearsal", "--scale", "0.0002", "--folder", str(tmp_path), "--out", str(tmp_path / "out.json")]
    for variable in ("OMP_NUM_THREADS", "TQDM_DISABLE", cache.VARIABLE):
        monkeypatch.setenv(variable, "1")  # main() sets them for its stages
    monkeypatch.setattr("sys.argv", [*arguments, "--stages", *chosen])
    rehearsal.main()
    stages = json.loads((tmp_path / "out.json").read_text())["0.0002"]["stages"]
    assert list(stages) == chosen
    assert {stages[name]["count"] for name in chosen[:3]} == {sizes.of(0.0002).passages}
    assert sizes.of(0.0002).examples <= stages["examples"]["count"] < 1.1 * sizes.of(0.0002).examples
    assert all(stage["cpu_s"] > 0 and stage["peak_gb"] > 0 for stage in stages.values())
    rehearsal.main()
    assert json.loads((tmp_path / "out.json").read_text())["0.0002"]["stages"] == stages


def test_one_line_says_what_a_card_is_good_for():
    large = gpu_check.verdict(RATES | {"card": "H100"}, 80)
    expected = r"H100, 80 GB: all batches of the paper fit; the paper's grid would take [\d,]+ to [\d,]+ hours"
    assert re.fullmatch(expected, large), large
    small = RATES | {"card": "old", "plaid": {"error": "out of memory"}}
    assert gpu_check.verdict(small, 8) == (
        "old, 8 GB: all batches of the paper fit but those of biencoder, splade; no hours, as these parts failed: plaid"
    )


@pytest.mark.parametrize("name", config.names())
@pytest.mark.parametrize("rates", [cost.ASSUMED, RATES], ids=["assumed", "measured"])
def test_every_config_is_projected(name: str, rates: dict[str, Any]):
    """Each of its systems that needs a GPU has its training and search, and its encoding unless it re-ranks."""
    hours = cost.projection(rates, name, 1_000_000)
    neural = [system for system in config.load(name) if system.partition("-")[0] not in ("bm25", "static")]
    for system in neural:
        parts = ("train", "search") if system.startswith("monobert") else ("train", "encode", "search")
        assert all((hours[f"{system}: {part}"] > 0).all() for part in parts)
    assert {name.partition(":")[0] for name in hours} == {*neural}


@pytest.mark.slow
def test_our_training_does_the_peers_work(tmp_path: Path):
    measured = training.measure(tmp_path, queries=300, steps=3, repeats=1)["training"]
    assert list(measured) == ["biencoder", "splade", "colbert", "monobert"]
    for figures in measured.values():
        assert figures["largest_weight_difference"] == 0
        assert all(figures[name]["samples_per_second"] > 0 for name in ("ours", "peer"))
        assert set(figures["overhead"]) == {"wall_s", "cpu_s"}
