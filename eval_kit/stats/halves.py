"""Kinds of query that are looked for in one half of the queries and tested in the other, each half in turn.

Of hundreds of kinds the worst is bad by luck alone. In the half that nobody looked at, a kind is as good as one
that was named beforehand, so that Holm's correction is over the few that were picked (cross-fitting: Cox 1975,
Biometrika 62). docs/discover.md says how often it is wrong, and what it finds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval_kit.stats.differences import Difference, difference, differences
from eval_kit.stats.distance import Integers
from eval_kit.stats.kinds import Kinds
from eval_kit.stats.losses import holm, simultaneous
from eval_kit.stats.parts import Flags, Floats
from eval_kit.tables.table import ALPHA

# with five as many planted losses were found, and with one half alone fewer (docs/discover.md)
PICKED = 3
"""Kinds that each half picks, at most."""
# no experiment chose these two: a kind of most queries has too few others to differ from, and of two kinds that share
# half of their queries the second says little new
_WIDEST = 0.6
"""Share of the queries; a kind that holds more is no kind of its own."""
_OVERLAP = 0.5
"""Share of the smaller of two kinds that they may have in common."""


@dataclass(frozen=True)
class Picked:
    """A kind that one half picked, and what the other says of it.

    Attributes:
        name: in words.
        half: in which it was tested, 1 or 2.
        found: the mean gain of its queries in the half that picked it.
        rows: its queries in the other.
        held: their mean gain.
        ends: the interval of that, which holds together with those of the other kinds in 95 % of cases.
        p: of no difference, after Holm's correction over the kinds.
        p_rest: likewise, of no difference to the other queries of that half.
        detectable: the loss that is found in 80 % of cases.
    """

    name: str
    half: int
    found: float
    rows: Integers
    held: Difference
    ends: tuple[float, float] | tuple[None, None] = (None, None)
    p: float | None = None
    p_rest: float | None = None
    detectable: float | None = None

    @property
    def loses(self) -> bool:
        """Whether a loss is shown."""
        return self.p is not None and self.p < ALPHA and (self.held.value or 0.0) < 0


def worst(
    gains: Floats, kinds: Kinds, fewest: int, most: float = 1.0, seed: int = 0, groups: Integers | None = None
) -> list[Picked]:
    """The kinds that lose most in a half and overlap little, as the other half shows them, the surest loss first.

    A kind that both halves pick is there twice.

    Args:
        gains: (n,) of each query.
        kinds: of these queries.
        fewest: queries that a kind has in each half, at least; groups of them, where these are whole.
        most: what a query can lose at most.
        seed: of the halves.
        groups: (n,) the number of the group of each query, if they may hang together: where that matters, a group is
            whole in a half, so that the other has no copies, and tests count groups.
    """
    rng = np.random.default_rng(seed)
    if groups is not None and difference(gains, most, np.asarray(groups, np.int64)).ratio > 1:
        distinct, of_queries = np.unique(groups, return_inverse=True)
        first = (rng.permutation(len(distinct)) < len(distinct) // 2)[of_queries]
    else:
        first, groups = rng.permutation(len(gains)) < len(gains) // 2, None

    def count(rows: Integers) -> int:
        return len(rows if groups is None else np.unique(groups[rows]))

    tests = []
    for half, looked in ((2, first), (1, ~first)):
        inside = {name: rows[looked[rows]] for name, rows in kinds.items()}
        outside = {name: rows[~looked[rows]] for name, rows in kinds.items()}
        known = {
            name: rows
            for name, rows in inside.items()
            if min(count(rows), count(outside[name])) >= fewest and len(rows) <= _WIDEST * looked.sum()
        }
        picked = _picked(gains, known, looked, most, groups)
        held, to_rest = _tested(gains, {name: outside[name] for name in picked}, ~looked, most, groups)
        for name, figure, rest in zip(picked, held, to_rest, strict=True):
            tests.append(Picked(name, half, float(gains[known[name]].mean()), outside[name], figure, p_rest=rest))
    together = simultaneous([kind.held for kind in tests])
    apart = holm([kind.p_rest for kind in tests])
    found = []
    for kind, (ends, p), p_rest in zip(tests, together, apart, strict=True):
        found.append(replace(kind, ends=ends, p=p, p_rest=p_rest, detectable=kind.held.detectable(len(tests))))
    found.sort(key=lambda kind: (not kind.loses, 1.0 if kind.p is None else kind.p, kind.held.value))
    names = [kind.name for kind in found]
    return sorted(found, key=lambda kind: names.index(kind.name))


def _picked(gains: Floats, kinds: Kinds, looked: Flags, most: float, groups: Integers | None) -> list[str]:
    """The names of the kinds that lose most to the other queries, by the test of that, and are not the same queries."""
    found, to_rest = _tested(gains, kinds, looked, most, groups)
    mean = float(gains[looked].mean())
    by_p = sorted(
        (p, (figure.value or 0.0) - mean, name)
        for name, figure, p in zip(kinds, found, to_rest, strict=True)
        if p is not None and figure.value is not None and figure.value < min(mean, 0.0)
    )
    picked: list[str] = []
    for *_, name in by_p:
        own = kinds[name]
        common = [len(np.intersect1d(own, kinds[other])) / min(len(own), len(kinds[other])) for other in picked]
        if max(common, default=0.0) < _OVERLAP:
            picked.append(name)
        if len(picked) == PICKED:
            break
    return picked


def _tested(
    gains: Floats, kinds: Kinds, half: Flags, most: float, groups: Integers | None
) -> tuple[list[Difference], Sequence[float | None]]:
    """Each kind's mean gain in a half, and the p of no difference to the half's other queries."""
    if not kinds:
        return [], []
    rows = np.concatenate(list(kinds.values()))
    numbers = np.repeat(np.arange(len(kinds)), list(map(len, kinds.values())))
    together = None if groups is None else np.asarray(groups[rows], np.int64)
    return differences(gains[rows], numbers, len(kinds), gains[half], most, together)
