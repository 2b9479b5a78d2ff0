"""The rehearsal, the check of a GPU and the projection, at sizes that a CPU takes seconds for."""

import json
from pathlib import Path

import pytest

from baselines import config
from bench import cost, gpu_check
from bench.rehearsal import __main__ as rehearsal
from bench.rehearsal import collection, sizes
from eval_kit.search import cache


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


def test_hours_are_work_divided_by_rates():
    rates = {"searched": 1_000_000, "re-rank": {"pairs_per_second": 1_000}}
    for system in cost.SEARCHES:
        rates |= {f"train {system}": {"samples_per_second": 100}, f"encode {system}": {"passages_per_second": 500}}
    rates |= {"train monobert": {"samples_per_second": 10}}
    rates |= {name: {"queries_per_second": 50} for name in ("dense search", "sparse search")}
    rates |= {"plaid": {"queries_per_second": 20, "build_s": 60, "passages": 1_000_000}}
    hours = cost.projected(rates, config.load("paper"), 2_000_000)
    assert hours["biencoder: train"] == pytest.approx(10 * 100_000 * 128 / 100 / 3_600)
    assert hours["biencoder: encode"] == pytest.approx(10 * 2_000_000 / 500 / 3_600)
    assert hours["biencoder: search"] == pytest.approx(228_641 * 2 / 50 / 3_600)
    assert hours["colbert: encode"] - hours["biencoder: encode"] == pytest.approx(10 * 2 * 60 / 3_600)
    assert hours["monobert: search"] == pytest.approx(228_641 * 1_000 / 1_000 / 3_600)


def test_the_largest_rehearsal_says_what_the_cpus_take():
    rehearsed = {
        "1": {"stages": {"texts": {"cpu_s": 7_200}, "score": {"cpu_s": 1}}},
        "0.01": {"stages": {"texts": {"cpu_s": 360}, "candidates": {"cpu_s": 36}}},
    }
    assert cost.on_cpus(rehearsed) == {"texts": (2, "measured"), "candidates": (1, "projected from scale 0.01")}


@pytest.mark.slow
def test_every_part_of_the_gpu_check_works_on_a_cpu(tmp_path: Path):
    document = gpu_check.measured(tmp_path, gpu_check.CPU)
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
    large = gpu_check.verdict(cost.ASSUMED | {"card": "H100"}, 80)
    assert large == "H100, 80 GB: all batches of the paper fit; the paper's grid would take 76 hours"
    small = cost.ASSUMED | {"card": "old", "plaid": {"error": "out of memory"}}
    assert gpu_check.verdict(small, 8) == (
        "old, 8 GB: all batches of the paper fit but those of biencoder, splade; no hours, as these parts failed: plaid"
    )


@pytest.mark.parametrize("name", config.names())
def test_every_config_is_projected(name: str):
    """Each of its systems that needs a GPU has its training, encoding and search."""
    options = config.load(name)
    hours = cost.projected(cost.ASSUMED, options, 1_000_000)
    neural = [system for system in options if system.partition("-")[0] not in ("bm25", "static")]
    assert list(hours) == [f"{system}: {part}" for system in neural for part in ("train", "encode", "search")]
    assert all(hours[f"{system}: train"] > 0 and hours[f"{system}: search"] > 0 for system in neural)
