"""``python -m tests.generalise_rates``: the verdicts of ``eval_kit generalise`` where the truth is known by design.

Each query's relevant passage has a rank, exp(difficulty + luck), for the model and for the pivot; values are RR@10.
Parts differ in difficulty, and kinds in how the model gets along. Half of the parts are far, and may be harder or
easier for both; a loss moves the model's ranks on far queries alone. Beside the rule in use stands the one before it,
whose slope over queries takes off too little of a difference in difficulty. Figures go to
``bench/results/generalise.json``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.stats.differences import ALPHA
from eval_kit.stats.far import DEGRADES, DOES_NOT, cost_of_far, predicted, verdict
from eval_kit.stats.losses import MARGIN
from eval_kit.stats.parts import Contrast, contrast

RESULTS = Path(__file__).parents[1] / "bench/results/generalise.json"
PARTS, KINDS, LUCK, SPREAD_OF_PARTS, SPREAD = 60, 0.1, 1.0, 0.5, 1.5
HARDER = {"as hard": 0.0, "harder by .05": 0.25, "harder by .10": 0.5, "harder by .18": 1.0}
HARDER |= {"easier by .05": -0.25, "easier by .10": -0.5, "easier by .18": -1.0}
NULLS: dict[str, dict[str, Any]] = {name: {"harder": harder} for name, harder in HARDER.items()}
NULLS |= {f"pivot shares {share}": {"harder": 0.5, "share": share} for share in (0.9, 0.8, 0.7, 0.6, 0.3)}
NULLS |= {"re-ranker of the pivot": {"harder": 0.5, "rerank": True}}
NULLS |= {"6 far of 60 parts": {"far_parts": 6, "far_kinds": 0.6}}
NULLS |= {"one kind as far": {"kinds": 0.3, "far_kinds": 0.3, "one_kind": True}}
LOSSES = {"5 %": 0.05, "10 %": 0.1}

type Floats = NDArray[np.float64]


def main() -> None:
    """Draw, judge, and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--draws", type=int, default=400)
    draws = arguments.parse_args().draws
    rows = []
    for size in (1_000, 5_000):
        for name, setting in NULLS.items():
            rows.append({"queries": size, "loss": "none", "setting": name} | judged(setting, size, 0.0, draws))
        for loss, share in LOSSES.items():
            for name in ("as hard", "harder by .10", "easier by .10"):
                shift = _shift_for(share, NULLS[name])
                rows.append({"queries": size, "loss": loss, "setting": name} | judged(NULLS[name], size, shift, draws))
                print(json.dumps(rows[-1]), flush=True)
        RESULTS.write_text(
            json.dumps(json.loads(RESULTS.read_text()) | {"draws": draws, "rule": rows}, indent=1) + "\n"
        )


def judged(setting: dict[str, Any], size: int, shift: float, draws: int) -> dict[str, Any]:
    """Shares of draws with each word, by both rules, and of intervals that hold the truth."""
    values, without, _, _, _, far = drawn(np.random.default_rng(5), 300_000, 3_000, shift, **setting)
    truth, harder = (values - without)[far].mean(), without[far].mean() - values[~far].mean()
    counts = dict.fromkeys(("degrades", "does_not", "refused", "holds", "adjusted_holds", "before", "before_holds"), 0)
    for number in range(draws):
        values, _, pivot, covariates, parts, far = drawn(
            np.random.default_rng([size, number]), size, PARTS, shift, **setting
        )
        cost = cost_of_far(values, pivot, covariates, parts, far)
        gain = values - pivot
        before = contrast(gain - predicted(gain, covariates, parts, ~far), parts, far)
        if cost is None or before is None:
            continue
        margin = MARGIN * values[~far].mean()
        word, _ = verdict(cost.p, cost.p_loses(margin), cost.adjusted.value, 1.0, cost.refusal)
        counts["degrades"] += word == DEGRADES
        counts["does_not"] += word == DOES_NOT
        counts["refused"] += bool(cost.refusal)
        counts["before"] += before.p < ALPHA and before.value < 0
        side, of_adjusted, of_before = (_side(each, truth) for each in (cost.plain, cost.adjusted, before))
        counts["holds"] += not (side and side == of_adjusted)  # the union of both intervals
        counts["adjusted_holds"] += not of_adjusted
        counts["before_holds"] += not of_before
    shares = {name: round(int(count) / draws, 4) for name, count in counts.items()}
    return {"harder": round(float(harder), 3), "truth": round(float(truth), 4)} | shares


def _side(estimate: Contrast, truth: float) -> int:
    """Where the 95 % interval lies: 1 above the truth, −1 below it, 0 around it."""
    above = estimate.p_loses(-truth)
    return int(above < ALPHA / 2) - int(above > 1 - ALPHA / 2)


def drawn(
    random: np.random.Generator,
    size: int,
    number: int,
    shift: float = 0.0,
    harder: float = 0.0,
    share: float = 1.0,
    kinds: float = KINDS,
    far_kinds: float = KINDS,
    far_parts: int = PARTS // 2,
    one_kind: bool = False,
    rerank: bool = False,
) -> tuple[Floats, Floats, Floats, Floats, NDArray[np.int64], NDArray[np.bool_]]:
    """The model's values, those without a loss, the pivot's, the covariates, the parts, and whether they are far."""
    is_far = np.arange(number) < number * far_parts // PARTS
    part = random.permutation(np.arange(size) % number)
    far = is_far[part]
    of_part, of_kind = random.normal(0, SPREAD_OF_PARTS, number), random.normal(0, 1, number)
    if one_kind:
        of_kind[is_far] = of_kind[0]
    of_kind *= np.where(is_far, far_kinds, kinds)
    difficulty = 0.8 + of_part[part] + random.normal(0, SPREAD, size) + harder * far
    of_pivot = difficulty * share + random.normal(0.8 * (1 - share), SPREAD * (1 - share**2) ** 0.5, size)
    rank = np.ceil(np.exp(of_pivot + random.normal(0, LUCK, size)))
    luck = difficulty + random.normal(0, LUCK, size) - 0.5 + of_kind[part]
    with_loss, without = (np.ceil(np.exp(luck + moved)) for moved in (shift * far, 0.0))
    if rerank:  # the pivot's first ten in another order
        with_loss, without = (np.where(rank <= 10, np.minimum(each, 10), np.inf) for each in (with_loss, without))
    found, words = rank <= 100, np.log(1 + random.integers(2, 12, size))
    covariates = [_rr(rank), np.where(found, 1 / (1 + np.log(rank)), 0), found.astype(float), words, words**2]
    return _rr(with_loss), _rr(without), _rr(rank), np.column_stack(covariates), part, far


def _rr(rank: Floats) -> Floats:
    return np.where(rank <= 10, 1 / rank, 0.0)


def _shift_for(loss: float, setting: dict[str, Any]) -> float:
    """What moves ranks by so much that far queries lose this share of the near level."""
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        values, without, _, _, _, far = drawn(np.random.default_rng(5), 100_000, 1_000, middle, **setting)
        lost = (without - values)[far].mean() / values[~far].mean()
        low, high = (middle, high) if lost < loss else (low, middle)
    return (low + high) / 2


if __name__ == "__main__":
    main()
