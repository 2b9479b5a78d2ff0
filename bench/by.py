"""``python -m bench.by RELEASE A B``: how often ``eval_kit compare --by`` errs, and what it finds, on real differences.

Null: the differences of two runs with random signs, so that no part loses. Power: the same, and in one of some parts of
equal size a share of the queries finds nothing. Figures go to ``bench/results/by.json``; docs/by.md has SQuAD's.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.divisions import FEWEST, divide
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, open_release
from eval_kit.stats.differences import ALPHA, WORSE, differences, verdict
from eval_kit.stats.figure import Figure
from eval_kit.stats.losses import holm, resampled_means
from eval_kit.stats.parts import FEWEST_PARTS, heterogeneity

RESULTS = Path(__file__).parent / "results" / "by.json"
MEASURE, MARGIN, SEED = "nDCG@10", 0.02, 1
DIVISIONS = ("question-word", "metadata.article", "words")
PARTS, SIZES, LOSSES = (9, 64), (200, 1_000, 5_000), (0.05, 0.1, 0.2)
RESAMPLES = 500

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]


def main() -> None:
    """Score both runs, draw, and print a line a setting."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("release", type=Path)
    parser.add_argument("runs", type=Path, nargs=2)
    parser.add_argument("--draws", type=int, default=1_000)
    arguments = parser.parse_args()
    release = open_release(arguments.release)
    values = _values(arguments.runs, release)
    rows = []
    for name in DIVISIONS:
        parts = divide(name, release, release.queries("test")).parts
        members = parts.join(values, on="query_id", maintain_order="left")
        rows.append({"by": name, **null(members, arguments.draws)})
        print(json.dumps(rows[-1]), flush=True)
    cells = []
    a, b = values["a"].to_numpy(), values["b"].to_numpy()
    for parts_count in PARTS:
        for size in SIZES:
            for loss in LOSSES:
                found = power(a, b - a, parts_count, size, loss, arguments.draws)
                cells.append({"parts": parts_count, "queries": size, "loss": loss, **found})
                print(json.dumps(cells[-1]), flush=True)
    figures = {"runs": [run.name for run in arguments.runs], "measure": MEASURE, "queries": values.height}
    figures |= {"differ": int((a != b).sum()), "margin": MARGIN, "draws": arguments.draws}
    RESULTS.write_text(json.dumps({**figures, "null": rows, "power": cells}, indent=1) + "\n")


def null(members: pl.DataFrame, draws: int) -> dict[str, Any]:
    """Shares of draws with a part that is called worse, and of intervals that hold 0."""
    names = members["part"].unique(maintain_order=True)
    index = members["part"].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    real = (members["b"] - members["a"]).to_numpy()
    rng = np.random.default_rng(SEED)
    worse, parts_hold, these_hold, kinds_hold, kinds = 0, [], 0, 0, 0
    for _ in range(draws):
        change = real * rng.choice([-1.0, 1.0], len(real))
        of_parts = _tested(change, index, len(names))
        worse += WORSE in _verdicts(of_parts, len(names))
        parts_hold += [_holds_zero(each.interval) for each in of_parts]
        [together], _ = differences(change, np.zeros(len(change), np.int64), 1)
        these_hold += _holds_zero(together.interval)
        varied = [each for each in of_parts if each.error]
        if len(varied) >= FEWEST_PARTS:
            of_kinds = heterogeneity(*(np.array([getattr(e, n) for e in varied]) for n in ("value", "error")))
            kinds, kinds_hold = kinds + 1, kinds_hold + _holds_zero(of_kinds and of_kinds.interval)
    found: dict[str, Any] = {"parts": len(names), "worse": worse / draws, "parts_hold": float(np.mean(parts_hold))}
    return found | {"these_hold": these_hold / draws, "kinds_hold": kinds_hold / kinds if kinds else None}


def power(a: Floats, real: Floats, count: int, size: int, loss: float, draws: int) -> dict[str, float]:
    """Shares of draws in which the loss of part 0 is found: by the gate, by the mean of all, by its bootstrap alone.

    And of those in which one of the other parts is said to lose, by the gate and without correction (by t-tests).
    """
    rng = np.random.default_rng(SEED)
    parts = np.arange(size) % count
    found = dict.fromkeys(("gate", "mean", "alone", "others_gate", "others_alone"), 0)
    for _ in range(draws):
        chosen = rng.choice(len(a), size, replace=False)
        change = real[chosen] * rng.choice([-1.0, 1.0], size)
        change = np.where((parts == 0) & (rng.random(size) < loss), -a[chosen], change)
        of_parts = _tested(change, parts, count)
        if len(of_parts) == count:
            first, *others = _verdicts(of_parts, count)
            found["gate"] += first == WORSE
            found["others_gate"] += WORSE in others
            found["others_alone"] += any(each.value < 0 and (each.p or 1.0) < ALPHA for each in of_parts[1:])
        [together], _ = differences(change, np.zeros(size, np.int64), 1)
        found["mean"] += together.value < 0 and together.p is not None and together.p < ALPHA
        means = resampled_means(change[parts == 0][:, None], RESAMPLES, int(rng.integers(2**31)))
        found["alone"] += np.quantile(means, 0.975) < 0
    return {name: float(times) / draws for name, times in found.items()}


def _values(runs: list[Path], release: Release) -> pl.DataFrame:
    """``query_id``, ``a`` and ``b``."""
    scores = score(runs, release, [MEASURE], test_sets=["test"])
    a, b = (each.per_query for each in scores.means)
    return a.rename({"value": "a"}).join(b.rename({"value": "b"}), on="query_id", maintain_order="left")


def _tested(change: Floats, parts: Ints, count: int) -> list[Figure]:
    return [each for each in differences(change, parts, count)[0] if each.degrees + 1 >= FEWEST]


def _verdicts(of_parts: list[Figure], count: int) -> list[str]:
    """The gate's words; parts that are too small count in Holm's correction, as they do there."""
    untested: list[float | None] = [None] * (count - len(of_parts))
    p, p_loses = (holm([*of, *untested]) for of in ([e.p for e in of_parts], [e.p_loses(MARGIN) for e in of_parts]))
    return [verdict(*each, part.value) for *each, part in zip(p, p_loses, of_parts, strict=False)]


def _holds_zero(interval: tuple[float, float] | None) -> bool:
    return interval is not None and interval[0] <= 0 <= interval[1]


if __name__ == "__main__":
    main()
