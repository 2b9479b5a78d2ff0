"""Uncertainty of figures: paired tests, bootstrap intervals of losses and of correlations, correction for many tests.

Arrays in, plain values out; every result says how many pairs (``n``) it rests on. What has no value, such as a
relative loss where In is 0, is None, never infinity or NaN. Equal arguments give equal results: whatever is random
follows from ``seed``.

One *test set* is a list of queries. *In* is, for each query, the mean over the models that saw the query's cluster
in training; *Out* is the value of the model that did not (ECIR 2023 §3.2). Where a system was trained with several
seeds, both are (seeds, queries) arrays whose rows belong together.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from eval_kit.stats import p_values
from eval_kit.stats.differences import ROUNDING
from eval_kit.stats.figure import LEVEL, Figure
from eval_kit.stats.groups import greater_error
from eval_kit.stats.parts import Floats
from eval_kit.tables.table import ALPHA

type Draws = NDArray[np.int32]
type Integers = NDArray[np.int64]
type Loss = tuple[Figure, Figure, Figure]
"""Mean In, mean Out and Rel Loss = (In − Out) / In of one system on one test set."""

RESAMPLES = 10_000
MARGIN = 0.05
"""Share of In. A difference of less than 5 % is not noticeable (Spärck Jones 1974, Journal of Documentation 30)."""
FEWEST_PAIRS = 10
"""Pairs below which a correlation has no interval: with five, resamples of none left 0 out in 11 to 57 % of draws."""

_FEWEST_GIVEN = 8
"""Pairs below which there is no correlation given a third thing: with five, p < 0.05 needs ρ = 0.95 or more."""

_DRAWS_AT_ONCE = 1 << 20
_ROUNDING = 1e-12


def paired_t_test(inside: ArrayLike, out: ArrayLike, groups: Integers | None = None) -> Figure:
    """In − Out with the papers' test of a loss (ECIR 2023, Tables 2 and 3), over queries.

    Several seeds count as random too (:func:`_error`): where there is no loss and trainings differ more than queries
    do, p < 0.05 came in 12, 6 and 5 % of simulations with 2, 3 and 5 seeds.

    Args:
        inside: In of each query, (n,) or (seeds, n).
        out: Out of the same queries, in the same shape.
        groups: (n,) the number of the group of each query, if they may hang together (:mod:`eval_kit.stats.groups`).

    Raises:
        ValueError: shapes that differ, no queries, or values that are not finite.
    """
    of_in, of_out = _pair(inside, out)
    return _mean(of_in - of_out, _scale(of_in, of_out), groups)


def p_equivalent(inside: ArrayLike, out: ArrayLike, most: float = 1.0, groups: Integers | None = None) -> float | None:
    """The p-value of the test that Out lies within :data:`MARGIN` of In; of the same arguments.

    A loss that is not significant need not be small. Equivalence is shown by two one-sided t-tests (Schuirmann
    1987), of (1 − m) In < Out and of Out < (1 + m) In, as for a ratio of means (Berger and Hsu 1996): the margin
    m is a share of the mean In, whose own uncertainty counts. A loss of the margin may be that of few queries, so the
    error is at least what it would be then (:meth:`eval_kit.stats.differences.Difference.p_loses`). The p-value is the
    greater of the two; None where one of them does not vary, or In is 0.

    Args:
        inside: In of each query, (n,) or (seeds, n).
        out: Out of the same queries, in the same shape.
        most: what a query can lose at most, in the measure's unit.
        groups: as for :func:`paired_t_test`.
    """
    of_in, of_out = _pair(inside, out)
    scale, mean = _scale(of_in, of_out), abs(float(of_in.mean()))
    least = (MARGIN * mean * most / of_in.shape[-1]) ** 0.5
    sides = [_mean(each, scale, groups) for each in (of_out - (1 - MARGIN) * of_in, (1 + MARGIN) * of_in - of_out)]
    one_sided = []
    for side in sides:
        if side.error and mean and not (of_in == of_out).all():
            one_sided.append(replace(side, error=max(side.error, least)).p_loses(0.0))
    found = [p for p in one_sided if p is not None]
    return max(found) if len(found) == 2 else None


def differing(inside: ArrayLike, out: ArrayLike) -> int:
    """Queries of which In and Out differ; of the same arguments."""
    of_in, of_out = _pair(inside, out)
    return int((np.abs(of_in - of_out) > ROUNDING).any(axis=0).sum())


def difference_of_losses(first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike]) -> Figure:
    """The Rel Loss of one system less another's, over the same queries (and seeds, where there are several).

    Each loss is linearised (:func:`error_of_loss`), so that the test is a paired t-test of two means.

    Args:
        first: In and Out of a system, both (n,) or both (seeds, n).
        second: of another, on the same queries in one order.

    Returns:
        Undefined where an In is 0, the seeds of the two are not as many, or nothing varies.

    Raises:
        ValueError: as :func:`paired_t_test`.
    """
    columns = [_linearised(*first), _linearised(*second)]
    if columns[0] is None or columns[1] is None or columns[0].shape != columns[1].shape:
        return Figure()
    differences = columns[0] - columns[1]
    value, (error, degrees) = float(differences.mean()), _error(differences)
    return Figure() if error <= _ROUNDING else Figure(value, error, degrees)


def error_of_loss(inside: ArrayLike, out: ArrayLike, groups: Integers | None = None) -> tuple[float, float] | None:
    """The standard error of Rel Loss over queries (and seeds), and how many times as great groups make it.

    Rel Loss is linearised: a query's part in it is (Out / In · its In − its Out) / In. None where In is 0.
    """
    column = _linearised(inside, out)
    if column is None:
        return None
    alone, together = _error(column)[0], _error(column, groups)[0]
    return together, together / alone if alone else 1.0


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction of a family of p-values (Holm 1979).

    Args:
        p_values: of the whole family, say of all clusters and systems of a table. A None stays None, but counts in
            the size of the family: a test that could not be made does not make the others easier.

    Returns:
        Adjusted p-values in the same order; those at most α are significant at a family-wise error rate of α.

    Raises:
        ValueError: a p-value outside 0..1.
    """
    if wrong := [p for p in p_values if p is not None and not 0 <= p <= 1]:
        raise ValueError(f"a p-value lies in 0..1, not {wrong[0]}")
    results: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for step, (p, index) in enumerate(sorted((p, i) for i, p in enumerate(p_values) if p is not None)):
        highest = max(highest, min(1.0, (len(p_values) - step) * p))
        results[index] = highest
    return results


def correct(family: Sequence[dict[str, Any]], name: str) -> None:
    """Give each row of a family of tests ``<name>_holm``: its p of that name after :func:`holm`'s correction."""
    for row, p in zip(family, holm([row[name] for row in family]), strict=True):
        row[f"{name}_holm"] = p


def simultaneous(family: Sequence[Figure]) -> list[tuple[tuple[float, float] | tuple[None, None], float | None]]:
    """The 95 % intervals of a family that hold all together, each with its p after :func:`holm`'s correction.

    They are Bonferroni's, except that one which reaches over 0 where the correction shows a difference ends at 0
    (Strassburger and Bretz 2008, Statistics in Medicine 27): an interval and its sign never contradict each other.
    """
    found = []
    for figure, p in zip(family, holm([each.p for each in family]), strict=True):
        ends = figure.interval_of(len(family))
        if ends[0] is not None and ends[1] is not None and figure.value and p is not None and p < ALPHA:
            ends = (max(ends[0], 0.0), ends[1]) if figure.value > 0 else (ends[0], min(ends[1], 0.0))
        found.append((ends, p))
    return found


def holm_corrected(table: pl.DataFrame, family: list[str]) -> pl.DataFrame:
    """The table with ``p_holm``: its column ``p`` corrected over rows that agree in the columns ``family``.

    Where there is a column ``p_equivalent``, so is that, as ``p_equivalent_holm``.
    """
    tests = [name for name in ("p", "p_equivalent") if name in table.columns]
    parts = [
        part.with_columns(pl.Series(f"{name}_holm", holm(part[name].to_list()), pl.Float64) for name in tests)
        for part in table.with_row_index("row").partition_by(family)
    ]
    return pl.concat(parts).sort("row").drop("row")


def relative_loss(inside: ArrayLike, out: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Loss:
    """In, Out and Rel Loss of one system on one test set: :func:`relative_losses` of a single entry."""
    return relative_losses({"": (inside, out)}, resamples=resamples, seed=seed)[""]


def relative_losses[Key: Hashable](
    pairs: Mapping[Key, tuple[ArrayLike, ArrayLike]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    groups: Integers | None = None,
) -> dict[Key, Loss]:
    """In, Out and Rel Loss with paired bootstrap intervals, for many systems and measures on one test set.

    Rel Loss is (mean In − mean Out) / mean In (ECIR 2023 §3.2): of the means, not a mean of ratios. The formula is
    the same for measures of which lower is better, such as ASL, so there a harmful shift gives a *negative* loss
    (ECIR 2023, Figure 6).

    Each resample draws as many queries as there are, with replacement, and takes In and Out of the same ones. All
    entries see the same resamples, each the ones it would see alone. Where an entry has several seeds, each resample
    also draws as many of them, with replacement and independently of the queries (the pigeonhole bootstrap, Owen
    2007, for two crossed factors). A few seeds show too little of their spread (S seeds show (S − 1) / S of the
    variance due to them): where seeds matter more than queries, simulated 95 % intervals held the truth in
    69, 78, 89 and 91 % of cases with 2, 3, 5 and 10 seeds, and in a third when seeds were averaged instead.

    Args:
        pairs: In and Out of each entry, both (n,) or both (seeds, n), the queries in one order for all entries.
        resamples: how many to draw.
        seed: for the random numbers.
        groups: as for :func:`paired_t_test`; drawn whole where they widen the error of a loss.

    Raises:
        ValueError: shapes that differ, no queries, or values that are not finite.
    """
    if groups is not None and not any(
        (found := error_of_loss(*pair, groups)) and found[1] > 1 for pair in pairs.values()
    ):
        groups = None
    arrays = {key: _pair(*pair) for key, pair in pairs.items()}
    if len(sizes := {pair.shape[2] for pair in arrays.values()}) > 1:
        raise ValueError(f"the entries are of one test set, yet have {' and '.join(map(str, sorted(sizes)))} queries")
    if not arrays:
        return {}
    columns = np.concatenate([pair.reshape(-1, pair.shape[2]) for pair in arrays.values()])
    means = resampled_means(columns.T, resamples, seed, groups)
    losses = {}
    start = 0
    for key, pair in arrays.items():
        _, seeds, n = pair.shape
        of_seeds = means[:, start : start + 2 * seeds].reshape(-1, 2, seeds)
        start += 2 * seeds
        seed_draws = np.random.default_rng([seed, 1]).integers(seeds, size=(resamples, seeds))
        of_draws = np.take_along_axis(of_seeds, seed_draws[:, None], axis=2).mean(axis=2)
        inside, out = map(float, pair.mean(axis=(1, 2)))
        ratios = np.full(resamples, np.nan)
        np.divide(of_draws[:, 0] - of_draws[:, 1], of_draws[:, 0], out=ratios, where=of_draws[:, 0] != 0)
        losses[key] = (
            _resampled(inside, of_draws[:, 0], n),
            _resampled(out, of_draws[:, 1], n),
            _resampled((inside - out) / inside if inside else None, ratios, n),
        )
    return losses


def mean_estimate(values: ArrayLike) -> Figure:
    """The mean of values (n,) over queries, with its bootstrap interval."""
    column = np.asarray(values, np.float64)
    means = resampled_means(column[:, None], RESAMPLES, seed=0)[:, 0]
    return _resampled(float(column.mean()), means, len(column))


def spearman(
    x: ArrayLike,
    y: ArrayLike,
    *,
    given: ArrayLike | None = None,
    within: ArrayLike | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Figure:
    """Correlate losses with similarities (ECIR 2023 §5.2), or the scores of systems on two tests (CIKM 2022 §4.2).

    Pairs are resampled together. A resample in which one side is constant has no correlation: it is counted and left
    out. With fewer than :data:`FEWEST_PAIRS` there is a p, and no interval.

    Args:
        x: (n,).
        y: (n,), of the same things.
        given: (n,), such as their sizes: the partial coefficient, of what ranks by it do not explain.
        within: (n,), such as their shifts: where they are several, p is of orders within each, as shifts that differ
            on both sides correlate whatever their clusters do.
        resamples: how many to draw.
        seed: for the random numbers.

    Returns:
        Spearman's coefficient with its interval and the p of no correlation; without a value where n is under 3
        (:data:`_FEWEST_GIVEN` with ``given``), a side is constant, or what is given ranks like one of them.

    Raises:
        ValueError: not plain lists of one length, or values that are not finite.
    """
    sides = [np.asarray(side, np.float64) for side in (x, y, given) if side is not None]
    shapes = {side.shape for side in sides}
    if len(shapes) > 1 or sides[0].ndim != 1:
        raise ValueError(f"a correlation is of plain lists of one length, not of {' and '.join(map(str, shapes))}")
    if not np.isfinite(sides).all():
        raise ValueError("values must be finite")
    n = len(sides[0])
    if n < (3 if given is None else _FEWEST_GIVEN) or not all(map(np.ptp, sides)):
        return Figure(undefined=resamples)
    everything = np.arange(n, dtype=np.int32)[None]
    value = float(_spearman(sides, everything)[0])
    if np.isnan(value):
        return Figure(undefined=resamples)
    samples = []
    for rows in draws(n, resamples, seed):
        varied = np.all([np.ptp(side[rows], axis=1) > 0 for side in sides], axis=0)
        values = np.full(len(rows), np.nan)
        values[varied] = _spearman(sides, rows[varied])
        samples.append(values)
    ranks = [_ranks(side, everything)[0] for side in sides]
    groups = np.unique(np.asarray(within), return_inverse=True)[1] if within is not None else np.zeros(n, np.intp)
    if groups.any():
        p = p_values.of_order_within(ranks, groups, seed)
    elif given is None:
        p = p_values.of_rho(ranks[0], ranks[1], value)
    else:
        p = p_values.of_r(value, n - 3)
    found = _resampled(value, np.concatenate(samples), n, p)
    return found if n >= FEWEST_PAIRS else replace(found, ends=None)


def draws(n: int, resamples: int, seed: int) -> Iterator[Draws]:
    """The resamples of n things: (some, n) row numbers at a time, a few MiB each; equal for equal arguments."""
    rng = np.random.default_rng([seed, 0])  # [seed, 1] draws the seeds of training: two streams from one seed
    at_once = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, at_once):
        yield rng.integers(n, size=(min(at_once, resamples - start), n), dtype=np.int32)


def resampled_means(values: Floats, resamples: int, seed: int, groups: Integers | None = None) -> Floats:
    """Means of the columns of ``values`` (n, k) in each of the :func:`draws`, or of groups: (resamples, k)."""
    columns = np.ascontiguousarray(values.T)
    sizes = np.ones(len(values))
    if groups is not None:
        index = np.unique(groups, return_inverse=True)[1]
        columns, sizes = np.stack([np.bincount(index, column) for column in columns]), np.bincount(index).astype(float)
    means = []
    for rows in draws(len(sizes), resamples, seed):
        times = _times_drawn(rows)
        count = times @ sizes if groups is not None else np.full(len(times), float(len(values)))
        # column by column and without BLAS: each mean is the same, to the bit, whatever stands beside it
        means.append(np.stack([np.einsum("rn,n->r", times, column) for column in columns], axis=1) / count[:, None])
    return np.concatenate(means)


def _times_drawn(rows: Draws) -> Floats:
    """How often each resample drew each thing: (resamples, n)."""
    cells = rows + np.arange(len(rows))[:, None] * rows.shape[1]
    return np.bincount(cells.ravel(), minlength=rows.size).reshape(rows.shape).astype(np.float64)


def _pair(inside: ArrayLike, out: ArrayLike) -> Floats:
    """Both as one (2, seeds, n) array."""
    inside_values, out_values = (np.asarray(values, np.float64) for values in (inside, out))
    if inside_values.shape != out_values.shape or inside_values.ndim not in (1, 2) or inside_values.size == 0:
        raise ValueError(
            f"two equal shapes (n,) or (seeds, n) are needed, not {inside_values.shape} and {out_values.shape}"
        )
    pair = np.stack([np.atleast_2d(inside_values), np.atleast_2d(out_values)])
    if not np.isfinite(pair).all():
        raise ValueError("values must be finite")
    return pair


def _linearised(inside: ArrayLike, out: ArrayLike) -> Floats | None:
    """(seeds, n) values whose mean is Rel Loss, and whose mean's error is its error; None where In is 0."""
    of_in, of_out = _pair(inside, out)
    mean = float(of_in.mean())
    if not mean:
        return None
    ratio = float(of_out.mean()) / mean
    return np.asarray(1 - ratio + (ratio * of_in - of_out) / mean)


def _scale(of_in: Floats, of_out: Floats) -> float:
    """The greatest of a query's mean values, beside which a spread may be but rounding."""
    return float(np.abs([of_in.mean(axis=0), of_out.mean(axis=0)]).max())


def _mean(differences: Floats, scale: float, groups: Integers | None = None) -> Figure:
    """The mean of (seeds, n) values of this scale."""
    if differences.shape[1] == 1:
        return Figure(float(differences.mean()))
    error, degrees = _error(differences, groups)
    varies = error * differences.shape[1] ** 0.5 > _ROUNDING * scale
    return Figure(float(differences.mean(axis=0).mean()), error if varies else 0.0, degrees)


def _error(values: Floats, groups: Integers | None = None) -> tuple[float, float]:
    """Standard error of the mean of (seeds, n) values, and its degrees of freedom.

    Seeds and queries are two crossed random factors: the variance is what the queries' means vary by, plus what the
    seeds' vary by, less what their cells vary by alone. The degrees are those of Cochran's weighted t
    (:mod:`eval_kit.stats.crossed`), as Satterthwaite's are too many for two or three seeds.
    """
    seeds, n = values.shape
    if n == 1:
        return 0.0, 0.0
    of_queries, of_seeds = values.mean(axis=0), values.mean(axis=1)
    alone_error = float(of_queries.std(ddof=1)) / n**0.5
    found, of_error, _ = greater_error(alone_error, n - 1.0, of_queries - of_queries.mean(), groups)
    error = alone_error if found is None else found
    if seeds == 1:
        return error, of_error
    cells = values - of_queries - of_seeds[:, None] + values.mean()
    by_query, by_seed = error**2, float(of_seeds.var(ddof=1)) / seeds
    alone = float((cells**2).sum()) / ((seeds - 1) * (n - 1)) / values.size
    both = by_query + by_seed
    degrees = both / (by_query / of_error + by_seed / (seeds - 1)) if both else n - 1
    return float(max(both - alone, by_query) ** 0.5), degrees


def _resampled(value: float | None, samples: Floats, n: int, p: float | None = None) -> Figure:
    """A figure of n things with the percentiles of its resamples."""
    finite = samples[~np.isnan(samples)]
    ends = None
    if value is not None and n > 1 and len(finite):
        low, high = map(float, np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        ends = (low, high) if high - low > ROUNDING * max(abs(value), 1.0) else None
    return Figure(value, ends=ends, chance=p, undefined=len(samples) - len(finite))


def _pearson_rows(x: Floats, y: Floats) -> Floats:
    """Pearson's correlation of each row of x with that of y."""
    x = x - x.mean(axis=1, keepdims=True)
    y = y - y.mean(axis=1, keepdims=True)
    return np.clip((x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1)), -1, 1)


def _spearman(sides: Sequence[Floats], rows: Draws) -> Floats:
    """Spearman's coefficient of the first two sides in each row; the partial one, given a third."""
    ranks = [_ranks(side, rows) for side in sides]
    value = _pearson_rows(ranks[0], ranks[1])
    if len(ranks) == 2:
        return value
    of_first, of_second = (_pearson_rows(side, ranks[2]) for side in ranks[:2])
    with np.errstate(divide="ignore", invalid="ignore"):
        return (value - of_first * of_second) / np.sqrt((1 - of_first**2) * (1 - of_second**2))


def _ranks(values: Floats, rows: Draws) -> Floats:
    """The ranks of each row's values from 1, equal ones sharing their mean."""
    codes = np.unique(values, return_inverse=True)[1].astype(np.int32)[rows]
    times = _times_drawn(codes)
    last = times.cumsum(axis=1)
    return np.take_along_axis(last - (times - 1) / 2, codes, axis=1)
