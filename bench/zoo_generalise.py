"""Cages of ``eval_kit generalise``: ranks of a model and of pivots whose difficulty, luck and losses are known.

Each query's relevant passage has a rank, exp(difficulty + luck), for the model and for each pivot; values are RR@10.
Parts differ in difficulty, and kinds in how the model gets along. Half of the parts are far, and may be harder or
easier for all, or for a pivot alone; a loss moves the model's ranks on far queries.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from eval_kit.stats import far
from eval_kit.stats.losses import MARGIN
from eval_kit.stats.parts import Flags, Floats, Parts

type Rng = np.random.Generator

LUCK, SPREAD_OF_PARTS, SPREAD = 1.0, 0.5, 1.5


@dataclass(frozen=True)
class Shift:
    """How far queries differ.

    Attributes:
        harder: for all, in logarithms of ranks: 0.5 is .10 RR@10.
        loss: for the model alone; 0.27 is a tenth of the near level.
        of_pivots: for each pivot alone.
        share: of the difficulty that pivots share with the model.
        kinds: how much kinds differ for the model, near and far.
        parts: near and far together, and how many of them are far.
        wholes: kinds on either side that parts are pieces of; 0: each part is a kind.
    """

    harder: float = 0.0
    loss: float = 0.0
    of_pivots: tuple[float, ...] = (0.0,)
    share: float = 1.0
    kinds: tuple[float, float] = (0.1, 0.1)
    parts: tuple[int, int] = (60, 30)
    wholes: int = 0


HARDER = {"as hard": 0.0, "harder by .05": 0.25, "harder by .10": 0.5, "harder by .18": 1.0}
HARDER |= {"easier by .05": -0.25, "easier by .10": -0.5, "easier by .18": -1.0}
SHIFTS = {name: Shift(harder) for name, harder in HARDER.items()}
SHIFTS |= {f"harder by .10, pivot shares {share}": Shift(0.5, share=share) for share in (0.9, 0.8, 0.7, 0.6, 0.3)}
SHIFTS |= {
    "6 far of 60 parts": Shift(parts=(60, 6), kinds=(0.1, 0.6)),
    "12 parts": Shift(parts=(12, 6)),
    "pieces of one kind a side": Shift(kinds=(0.3, 0.3), wholes=1),
    "pieces of three kinds a side": Shift(kinds=(0.3, 0.3), wholes=3),
    "harder for the pivot alone": Shift(of_pivots=(0.5,)),
    "easier for the pivot alone": Shift(of_pivots=(-0.5,)),
    "two pivots": Shift(of_pivots=(0.0, 0.0), share=0.85),
    "easier for one of two pivots": Shift(of_pivots=(-0.5, 0.0), share=0.85),
    "easier for two pivots, the second half as much": Shift(of_pivots=(-0.5, -0.25), share=0.85),
}
LOSSES = {"as hard": SHIFTS["as hard"], "harder by .10": SHIFTS["harder by .10"]}
LOSSES |= {name: shift for name, shift in SHIFTS.items() if "pivots" in name or "pivot alone" in name}


def rr(rank: Floats) -> Floats:
    """RR@10."""
    return np.where(rank <= 10, 1 / rank, 0.0)


@dataclass(frozen=True)
class Drawn:
    """One draw: the model's values, those without its loss, the pivots' values with their covariates, and parts."""

    values: Floats
    without: Floats
    pivots: list[tuple[Floats, Floats]]
    parts: Parts
    far: Flags


def drawn(shift: Shift, rng: Rng, size: int) -> Drawn:
    """Values of so many queries."""
    number, far_parts = shift.parts
    is_far = np.arange(number) < far_parts
    part = rng.permutation(np.arange(size) % number)
    of_part, of_kind = rng.normal(0, SPREAD_OF_PARTS, number), rng.normal(0, 1, number)
    if shift.wholes:
        of_kind = rng.normal(0, 1, 2 * shift.wholes)[is_far * shift.wholes + np.arange(number) % shift.wholes]
    of_kind *= np.where(is_far, *shift.kinds[::-1])
    difficulty = 0.8 + of_part[part] + rng.normal(0, SPREAD, size) + shift.harder * is_far[part]
    ranks = difficulty + rng.normal(0, LUCK, size) - 0.5 + of_kind[part]
    values, without = (rr(np.ceil(np.exp(ranks + moved * is_far[part]))) for moved in (shift.loss, 0.0))
    words = np.log(1 + rng.integers(2, 12, size))
    pivots = []
    for alone in shift.of_pivots:
        own = rng.normal(0.8 * (1 - shift.share), SPREAD * (1 - shift.share**2) ** 0.5, size)
        rank = np.ceil(np.exp(difficulty * shift.share + own + alone * is_far[part] + rng.normal(0, LUCK, size)))
        found = rank <= 100
        covariates = [rr(rank), np.where(found, 1 / (1 + np.log(rank)), 0), found.astype(float), words, words**2]
        pivots.append((rr(rank), np.column_stack(covariates)))
    return Drawn(values, without, pivots, part, is_far[part])


def words(shift: Shift, rng: Rng, size: int) -> dict[str, bool | None]:
    """Whether a word is wrong, or a loss was not found, and whether the interval of the first pivot misses it."""
    draw = drawn(shift, rng, size)
    truth = float((draw.values - draw.without)[draw.far].mean())
    near = float(draw.values[~draw.far].mean())
    costs = [far.cost_of_far(draw.values, *pivot, draw.parts, draw.far) for pivot in draw.pivots]
    known = [cost for cost in costs if cost is not None]
    p, p_does_not = max(cost.p for cost in known), max(cost.p_loses(MARGIN * near) for cost in known)
    said = far.agreed([far.verdict(p, p_does_not, cost.adjusted.value, 1.0, cost.refusal)[0] for cost in known])
    low, high = known[0].interval
    outcomes: dict[str, bool | None] = {}
    if shift.loss:
        outcomes = {"does not": said == far.DOES_NOT, "degrades is found": said != far.DEGRADES}
    else:
        outcomes = {"degrades": said == far.DEGRADES, "does not is found": said != far.DOES_NOT}
    return outcomes | {"far minus near": not low <= truth <= high}


def cages() -> Iterator[tuple[str, Callable[[Rng], dict[str, bool | None]]]]:
    """Each cage by its name, with what is claimed of one draw of it."""
    for size in (1_000, 5_000):
        for name, shift in SHIFTS.items():
            yield f"{name}, n = {size:,}", lambda rng, shift=shift, size=size: words(shift, rng, size)
        for name, shift in LOSSES.items():
            lossy = Shift(**{**vars(shift), "loss": 0.27})
            yield (
                f"a loss of a tenth, {name}, n = {size:,}",
                lambda rng, lossy=lossy, size=size: words(lossy, rng, size),
            )
