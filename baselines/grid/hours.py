"""The hours of a GPU that cells take: their work by the rates of a card. No GPU has been met: the rates are assumed.

A rate is one number, which varies by 10 %, or the two ends of a range that holds 95 of 100 draws (log-normal).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines.cell import Cell
from baselines.options import Biencoder, Colbert, Monobert, SmallBackbone, Static, Trained
from baselines.training.queries import queries_for
from eval_kit.runs.names import base
from eval_kit.search.passages import how_many
from eval_kit.sentences import joined

STEPS = {"biencoder": (7.3, 5_743), "splade": (11.2, 6_159), "colbert": (3.3, 1_232), "monobert": (5.8, 1_484)}
"""TFLOP and kernels of a step of the config ``paper``, calculated (``bench/results/bounds.json``) on one drawn batch.

monoBERT's varies most, as all 96 pairs are padded to the longest: 5.6 TFLOP in the mean, 4.1 to 7.9 in 90 % of draws.
"""
TEXTS = {"biencoder": 256, "splade": 256, "colbert": 64, "monobert": 96}
"""Passages, or pairs, of that step; its backbone has ``_LAYERS``."""
SAVED = {"colbert": 0.22, "monobert": 0.1}
"""Share of that step's tokens that batches of similar length do not pad, counted on MS MARCO's passages."""
_LAYERS = 6
_POOL = 1_600 * 101
"""Passages of an evaluation: the validation queries' own and 100 negatives of each."""
SEARCHES = {"biencoder": "dense search", "splade": "sparse search", "colbert": "plaid"}
MS_MARCO = 8_841_823
_VECTOR = 768 * 2
"""Bytes of a passage's vector: BERT-base's, in half precision."""
TOKENS, PLAID_SHARE = 70, 0.6
"""Vectors of a passage in ColBERT; bytes of PLAID's index for each byte of these."""
H100: dict[str, Any] = {
    "tflops": (150, 300),  # of 989: a third of a step only reads and writes
    "launch_us": (4, 9),
    "waiting": (0.06, 1.0),  # share of the launches that the GPU waits for
    "until": (0.42, 1.0),  # share of the steps after which a training with early stopping ends
    "encode biencoder": (16_000, 57_000),
    "encode splade": (10_000, 31_000),
    "encode colbert": (16_000, 57_000),
    "re-rank": (16_000, 43_000),
    "dense search": (50, 1_000),
    "sparse search": (50, 500),
    "plaid": (30, 300),
    "plaid build": (2_456, 9_824),
    "disk_gb": (0.5, 3.0),
    "vectors_gb": (300, 1_500),  # of 3,350: widened to float32 block by block
}
"""By second: passages encoded or built, pairs scored, queries searched; a careful estimate, and what memory allows."""
DRAWS = 10_000

type Draws = NDArray[np.float64]


def of_cell(
    system: str, options: Trained, passages: int, queries: int, pairs: int, rates: Mapping[str, Any] = H100
) -> Draws:
    """Draws of the hours of one cell of a neural system.

    Args:
        system: its name.
        options: of the system; a transformer's.
        passages: of the collection.
        queries: that the cell searches.
        pairs: judged ones that it trains on, for options with ``epochs``.
        rates: as ``H100``; ``train <system>`` in samples a second replaces the operations and launches of a step.
    """
    kind = base(system)
    steps = np.full(DRAWS, float(options.steps or (options.epochs or 0) * pairs / options.batch_size))
    is_cross = isinstance(options, Monobert)
    reads = _draws(rates, "re-rank" if is_cross else f"encode {kind}")
    each = _step(kind, options, rates)
    if _finds(options):
        each = each + passages * _VECTOR / 1e9 / _draws(H100, "vectors_gb")
    if options.evaluate_every is not None:
        steps *= np.minimum(1, _draws(H100, "until"))
        each = each + _POOL / options.evaluate_every / reads
    seconds: Draws = steps * each + (passages / reads if _finds(options) else 0)
    if isinstance(options, Monobert):
        return (seconds + queries * options.candidates / reads) / 3_600
    of_all = passages / MS_MARCO if kind != "colbert" else 1  # exact search reads all passages
    seconds = seconds + passages / reads + queries * of_all / _draws(rates, SEARCHES[kind])
    if isinstance(options, Colbert):
        gigabytes = passages * TOKENS * options.dimensions * 2 / 1e9
        seconds = seconds + passages / _draws(rates, "plaid build")
        seconds = seconds + gigabytes * (2 + PLAID_SHARE) / _draws(H100, "disk_gb")  # written, read; the index written
    return seconds / 3_600


def of_grid(cells: Sequence[Cell]) -> dict[str, Draws]:
    """By system, the hours of the unfinished cells that start from a named transformer."""
    hours: dict[str, Draws] = {}
    for cell in cells:
        options = cell.options
        if isinstance(options, Trained) and not (
            cell.is_finished or isinstance(options, Static) or isinstance(options.backbone, SmallBackbone)
        ):
            pairs = 0 if options.steps else queries_for(cell).queries.height
            counts = how_many(cell.release) or 0, cell.test_queries().height, pairs
            before = hours.get(cell.name.system, np.zeros(DRAWS))
            hours[cell.name.system] = before + of_cell(cell.name.system, options, *counts)
    return hours


def memory(cells: Sequence[Cell]) -> list[str]:
    """A line for each system that searches all passages at every step of its training."""
    lines = {}
    for cell in cells:
        if isinstance(cell.options, Trained) and _finds(cell.options) and not cell.is_finished:
            gigabytes = (how_many(cell.release) or 0) * _VECTOR / 1e9
            what = f"{cell.name.system} searches {gigabytes:.1f} GB of vectors at every step"
            lines[cell.name.system] = f"{what}. A GPU without room for them reads them from the disk, far more slowly"
    return [*lines.values()]


def saved(systems: Iterable[str]) -> str:
    """What batches of similar length save these systems; empty where it is nothing."""
    parts = [f"{share:.0%} of the tokens of {system}" for system in systems if (share := SAVED.get(base(system)))]
    return f"Batches of similar length save {joined(parts)} in training" if parts else ""


def _finds(options: Trained) -> bool:
    return isinstance(options, Biencoder) and options.starts_from is not None


def in_words(hours: Mapping[str, Draws]) -> str:
    """The hours of all systems, and of each, as ranges that hold 95 of 100 draws."""
    parts = ", ".join(f"{system} {_span(draws)}" for system, draws in hours.items())
    return f"{_span(sum(hours.values(), np.zeros(DRAWS)))} hours ({parts})"


def _step(kind: str, options: Trained, rates: Mapping[str, Any]) -> Draws:
    """Seconds of a training step."""
    if f"train {kind}" in rates:
        return options.batch_size / _draws(rates, f"train {kind}")
    in_batch = options.in_batch_negatives if isinstance(options, Monobert) else 0
    size = options.batch_size * (1 + options.negatives + in_batch) / TEXTS[kind]
    if "distil" not in str(options.backbone):
        size *= 12 / _LAYERS
    tflop, kernels = STEPS[kind]
    launching = kernels * _draws(rates, "waiting") * _draws(rates, "launch_us") / 1e6
    seconds: Draws = size * (tflop * (1 - SAVED.get(kind, 0)) / _draws(rates, "tflops") + launching)
    return seconds


def _draws(rates: Mapping[str, Any], name: str) -> Draws:
    """Draws of a rate, the same for the same name."""
    low, high = rates[name] if isinstance(rates[name], tuple) else (rates[name] / 1.1, rates[name] * 1.1)
    middle, width = np.log(low * high) / 2, np.log(high / low) / (2 * 1.96)
    return np.exp(np.random.default_rng(list(name.encode())).normal(middle, width, DRAWS))


def _span(draws: Draws) -> str:
    low, high = np.quantile(draws, (0.025, 0.975))
    return " to ".join(f"{end:,.0f}" if end >= 9.95 else f"{end:.1f}" for end in (low, high))
