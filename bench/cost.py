"""``python -m bench.cost [bench/results/gpu-<card>.json]``: the hours that a grid takes, part by part, as 95 % ranges.

Rates of a GPU come from a file of :mod:`bench.gpu_check`, or are ``ASSUMED``; processor time comes from the rehearsal.
A range holds 95 of 100 draws: each rate is drawn between its two ends, which 95 % of a log-normal distribution lie in.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines import config
from baselines.options import Colbert, Monobert, Static, Trained
from baselines.systems import base
from bench.rehearsal.sizes import PASSAGES
from eval_kit.shifts import CONTROL

TOKENS, PLAID_SHARE = 70, 0.6
"""Vectors of a passage in ColBERT; bytes of PLAID's index for each byte of these."""
RESULTS = Path(__file__).parent / "results"
REHEARSED = RESULTS / "rehearsal.json"
ECIR = ("topic", "wh", "length")
CELLS = {"topic": 5, "wh": 3, "length": 2, "resttest": 5, "restrain": 6, CONTROL.name: 1}
TEST_QUERIES = {
    "topic": 31_244, "wh": 19_487, "length": 6_980, "resttest": 7_077, "restrain": 7_077, CONTROL.name: 57_000,
}  # fmt: skip
"""By shift: how many models there are of a system, and how many queries each searches."""
PAIRS = {"resttest": 426_000, "restrain": 90_000}
"""Judged pairs that a model of CIKM 2022 trains on, in the mean."""
TRAINING_QUERIES = 200_000
"""The same for the other shifts, in configs that train for epochs."""
POOL = 1_600 * 101
"""Passages of an evaluation: the validation queries' own and 100 negatives of each."""
SEARCHES = {"biencoder": "dense search", "splade": "sparse search", "colbert": "plaid"}
READS = {"monobert": ("re-rank", "pairs_per_second")}
ASSUMED: dict[str, Any] = {
    "card": "H100",
    "tflops": (150, 300),  # of 989: a third of a step only reads and writes
    "launch_us": (4, 9),
    "waiting": (0.06, 1.0),  # share of the launches that the GPU waits for
    "compiled": (0.5, 0.9),  # of a step's time without torch.compile
    "encode biencoder": {"passages_per_second": (16_000, 57_000)},
    "encode splade": {"passages_per_second": (10_000, 31_000)},
    "encode colbert": {"passages_per_second": (16_000, 57_000)},
    "dense search": {"queries_per_second": (50, 1_000)},
    "sparse search": {"queries_per_second": (50, 500)},
    "plaid": {"queries_per_second": (30, 300), "build_s": (900, 3_600), "passages": PASSAGES},
    "re-rank": {"pairs_per_second": (16_000, 43_000)},
    "searched": PASSAGES,
}
"""An H100's rates, between a careful estimate and what operations, memory traffic and launches allow; not measured."""
ALWAYS_ASSUMED = {"steps": (0.42, 1.0), "disk_gb_per_second": (0.5, 3.0)}
"""Share of the steps after which a training with early stopping ends (0.65 if the best comes where the paper's did)."""
MEASURED_WITHIN = 1.1
"""What a measured rate is taken to vary by on the whole grid, either way."""
STAGES = ("texts", "bm25 index", "negatives", "candidates")
"""Stages that run once for a grid, on CPUs."""
DRAWS = 10_000

type Draws = NDArray[np.float64]


def projection(
    rates: Mapping[str, Any], name: str, passages: int, training_queries: int = TRAINING_QUERIES
) -> dict[str, Draws]:
    """Draws of the hours of each part of each neural system of a config, by rates of :mod:`bench.gpu_check`.

    Exact search is assumed to grow with the number of passages, PLAID's search not. Systems that train for epochs
    see ``training_queries`` in each, except on CIKM 2022's shifts. BM25 and the static vectors need no GPU.
    """
    plan = config.read(name)
    shifts = list(ECIR) if plan.shifts is None else [shift for shift in plan.shifts if shift in CELLS]
    shifts += [CONTROL.name] * plan.control
    cells = queries = pairs = 0
    for shift in shifts:
        cells += CELLS[shift]
        queries += CELLS[shift] * TEST_QUERIES[shift]
        pairs += CELLS[shift] * PAIRS.get(shift, training_queries)
    hours: dict[str, Draws] = {}

    def rate(part: str, what: str) -> Draws:
        return _draws(rates[part][what], part + what)

    for system, options in plan.systems.items():
        if not isinstance(options, Trained) or isinstance(options, Static):
            continue
        kind, parts = base(system), {}
        steps = options.steps * cells if options.steps else (options.epochs or 0) * pairs / options.batch_size
        reads = rate(*READS.get(kind, (f"encode {kind}", "passages_per_second")))
        if options.evaluate_every is not None:
            steps = steps * np.minimum(1, _draws(ALWAYS_ASSUMED["steps"], "steps"))
            parts["evaluations"] = steps / options.evaluate_every * POOL / reads
        parts["train"] = steps * step_seconds(rates, name, system, options)
        if isinstance(options, Monobert):
            parts["search"] = queries * options.candidates / reads
        else:
            parts["encode"] = cells * passages / reads
            share = passages / rates["searched"] if kind != "colbert" else 1
            parts["search"] = queries * share / rate(SEARCHES[kind], "queries_per_second")
        if isinstance(options, Colbert):
            parts["build"] = cells * passages / rates["plaid"]["passages"] * rate("plaid", "build_s")
            tokens = cells * passages * TOKENS * options.dimensions * 2 / 1e9
            disk = _draws(ALWAYS_ASSUMED["disk_gb_per_second"], "disk")
            parts["disk"] = tokens * (2 + PLAID_SHARE) / disk  # written, read by the build, which writes the index
        for part, seconds in parts.items():
            hours[f"{system}: {part}"] = seconds / 3_600
    return hours


def step_seconds(rates: Mapping[str, Any], name: str, system: str, options: Trained) -> Draws:
    """Draws of the seconds of a training step: measured, or from its operations and kernels (``bounds.json``).

    The step of a config that is no paper's is taken for that of the config ``paper``, with its own batch.
    """
    bounds = json.loads((RESULTS / "bounds.json").read_text(encoding="utf-8"))
    kind = base(system)
    paper = config.load("paper")[kind]
    assert isinstance(paper, Trained)
    of_paper, bound = bounds[f"paper/{kind}"], bounds.get(f"{name}/{system}")
    size = bound["tflop"] / of_paper["tflop"] if bound else options.batch_size / paper.batch_size
    if rate := rates.get(f"train {kind}"):
        return size * paper.batch_size / _draws(rate["samples_per_second"], f"train {kind}")
    waiting = _draws(rates["waiting"], "waiting") * _draws(rates["launch_us"], "launch") / 1e6
    kernels = bound["kernels"] if bound else size * of_paper["kernels"]
    seconds = size * of_paper["tflop"] / _draws(rates["tflops"], "tflops") + kernels * waiting
    return seconds * _draws(rates["compiled"], "compiled") if options.compile else seconds


def span(draws: Draws) -> str:
    """The range of 95 % of the draws."""
    low, high = np.quantile(draws, (0.025, 0.975))
    return " to ".join(f"{end:,.0f}" if end >= 9.95 else f"{end:.1f}" for end in (low, high))


def on_cpus(rehearsal: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """For each of ``STAGES`` the hours of processor time at full size, from the largest scale, and their source."""
    hours = {}
    for scale in sorted(rehearsal, key=float):
        how = "measured" if float(scale) == 1 else f"projected from scale {scale}"
        for stage in STAGES:
            if cost := rehearsal[scale]["stages"].get(stage):
                hours[stage] = (cost["cpu_s"] / float(scale) / 3_600, how)
    return hours


def main() -> None:
    """Print the hours."""
    parser = argparse.ArgumentParser(description="Hours that a grid takes.")
    parser.add_argument("rates", type=Path, nargs="?", help="JSON that bench.gpu_check wrote; assumed rates without it")
    parser.add_argument("--config", default="paper")
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument(
        "--training-queries", type=int, default=TRAINING_QUERIES, help="of systems that train for epochs"
    )
    arguments = parser.parse_args()
    rates = json.loads(arguments.rates.read_text(encoding="utf-8")) if arguments.rates else ASSUMED
    how = "projected from measured rates" if arguments.rates else "assumed"
    gpu = projection(rates, arguments.config, arguments.passages, arguments.training_queries)
    parts = {part: (span(draws), how) for part, draws in gpu.items()}
    parts[f"all on the GPU ({rates['card']})"] = (span(sum(gpu.values(), np.zeros(DRAWS))), how)
    for stage, (hours, source) in on_cpus(json.loads(REHEARSED.read_text(encoding="utf-8"))).items():
        parts[f"{stage} (one core)"] = (f"{hours:.1f}", source)
    print("| part | hours | |\n|---|---:|---|")
    for part, (hours, source) in parts.items():
        print(f"| {part} | {hours} | {source} |")


def _draws(rate: Any, name: str) -> Draws:
    """Draws of a rate, the same for the same name: between the ends given, or about the one number measured."""
    low, high = rate if isinstance(rate, (list, tuple)) else (rate / MEASURED_WITHIN, rate * MEASURED_WITHIN)
    middle, width = (np.log(low) + np.log(high)) / 2, (np.log(high) - np.log(low)) / (2 * 1.96)
    return np.exp(np.random.default_rng(list(name.encode())).normal(middle, width, DRAWS))


if __name__ == "__main__":
    main()
