"""Uncertainty of figures: paired tests, bootstrap intervals of losses and of correlations, correction for many tests.

Arrays in, plain values out; every result says how many pairs (``n``) it rests on. What has no value, such as a
relative loss where In is 0, is None, never infinity or NaN. Equal arguments give equal results: whatever is random
follows from ``seed``.

One *test set* is a list of queries. *In* is, for each query, the mean over the models that saw the query's cluster
in training; *Out* is the value of the model that did not (ECIR 2023 §3.2). Where a system was trained with several
seeds, both are (seeds, queries) arrays whose rows belong together.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from eval_kit.stats import p_values

type Floats = NDArray[np.float64]
type Draws = NDArray[np.int32]

RESAMPLES = 10_000
LEVEL = 0.95
MARGIN = 0.05
"""Share of In. A difference of less than 5 % is not noticeable (Spärck Jones 1974, Journal of Documentation 30)."""
KINDS = ("pearson", "spearman", "kendall")

_DRAWS_AT_ONCE = 1 << 20
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A figure and its percentile bootstrap interval.

    Attributes:
        value: of the data as they are; None where it is undefined.
        low: lower end of the interval; None where there is no value or fewer than two pairs.
        high: upper end.
        level: the share of intervals like this one that should hold the true value, :data:`LEVEL`.
        n: queries, or pairs.
        seeds: training seeds that were resampled too; 1 if there was nothing to resample.
        resamples: how many were drawn.
        undefined: how many of them had no value; the interval is that of the others.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    seeds: int
    resamples: int
    undefined: int

    def columns(self, name: str) -> dict[str, float | None]:
        """The figure and its interval as the columns of a row."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


@dataclass(frozen=True)
class Loss:
    """Mean In, mean Out and Rel Loss = (In − Out) / In of one system on one test set."""

    inside: Estimate
    out: Estimate
    rel_loss: Estimate


@dataclass(frozen=True)
class PairedTest:
    """A two-sided paired t-test.

    Attributes:
        n: pairs.
        difference: mean of In − Out.
        t: Student's t with n − 1 degrees of freedom; None where the differences do not vary (or n is 1).
        p: its two-sided p-value; None likewise.
        d: Cohen's d for paired samples (d_z): mean of the differences / their standard deviation (n − 1), so
            t = d √n; None likewise. By Cohen's convention 0.2 is small, 0.5 medium and 0.8 large.
        p_equivalent: p-value of the test that Out lies within :data:`MARGIN` of In; None where either side of it does
            not vary.
    """

    n: int
    difference: float
    t: float | None
    p: float | None
    d: float | None
    p_equivalent: float | None


@dataclass(frozen=True)
class Correlation:
    """A correlation coefficient with its interval, and the p-value against no correlation (None where undefined)."""

    kind: str
    estimate: Estimate
    p: float | None


def paired_t_test(inside: ArrayLike, out: ArrayLike) -> PairedTest:
    """The papers' test of a loss (ECIR 2023, Tables 2 and 3), over queries, and one of equivalence.

    A loss that is not significant need not be small. Equivalence is shown by two one-sided t-tests (Schuirmann
    1987), of (1 − m) In < Out and of Out < (1 + m) In, as for a ratio of means (Berger and Hsu 1996): the margin
    m is a share of the mean In, whose own uncertainty counts. ``p_equivalent`` is the greater of the two p-values.

    Args:
        inside: In of each query, (n,) or (seeds, n); seeds are averaged first, so n counts queries.
        out: Out of the same queries, in the same shape.

    Raises:
        ValueError: shapes that differ, no queries, or values that are not finite.
    """
    of_in, of_out = _pair(inside, out).mean(axis=1)
    n, scale = len(of_in), max(np.abs(of_in).max(), np.abs(of_out).max())
    from_below, from_above = of_out - (1 - MARGIN) * of_in, (1 + MARGIN) * of_in - of_out
    effects = [_effect_size(each, scale) for each in (of_in - of_out, from_below, from_above)]
    t, low, high = (None if d is None else d * n**0.5 for d in effects)
    p = None if t is None else p_values.of_t(t, n - 1)
    p_equivalent = None if low is None or high is None else p_values.above_t(min(low, high), n - 1)
    return PairedTest(n, float((of_in - of_out).mean()), t, p, effects[0], p_equivalent)


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
    pairs: Mapping[Key, tuple[ArrayLike, ArrayLike]], *, resamples: int = RESAMPLES, seed: int = 0
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

    Raises:
        ValueError: shapes that differ, no queries, or values that are not finite.
    """
    arrays = {key: _pair(*pair) for key, pair in pairs.items()}
    if len(sizes := {pair.shape[2] for pair in arrays.values()}) > 1:
        raise ValueError(f"the entries are of one test set, yet have {' and '.join(map(str, sorted(sizes)))} queries")
    if not arrays:
        return {}
    columns = np.concatenate([pair.reshape(-1, pair.shape[2]) for pair in arrays.values()])
    means = resampled_means(columns.T, resamples, seed)
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
        losses[key] = Loss(
            _estimate(inside, of_draws[:, 0], n, seeds),
            _estimate(out, of_draws[:, 1], n, seeds),
            _estimate((inside - out) / inside if inside else None, ratios, n, seeds),
        )
    return losses


def mean_estimate(values: ArrayLike) -> Estimate:
    """The mean of values (n,) over queries, with its bootstrap interval."""
    column = np.asarray(values, np.float64)
    means = resampled_means(column[:, None], RESAMPLES, seed=0)[:, 0]
    return _estimate(float(column.mean()), means, len(column))


def correlations(
    x: ArrayLike, y: ArrayLike, *, kinds: Sequence[str] = KINDS, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Correlation]:
    """Correlate losses with similarities (ECIR 2023 §5.2), or the scores of systems on two tests (CIKM 2022 §4.2).

    Pairs are resampled together. A resample in which one side is constant has no correlation: it is counted and left
    out. With a handful of pairs (five clusters) an interval is a rough guide at best. Kendall's is tau-b. All three
    take a second for 300 pairs; Kendall's needs the memory of a few (n, n) matrices.

    Args:
        x: (n,).
        y: (n,), of the same things.
        kinds: some of :data:`KINDS`.
        resamples: how many to draw.
        seed: for the random numbers.

    Returns:
        By kind. The values are None where n is under 3 or a side is constant.

    Raises:
        ValueError: not two plain lists of one length, or values that are not finite.
    """
    left, right = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if left.shape != right.shape or left.ndim != 1:
        raise ValueError(f"a correlation is of two plain lists of one length, not of {left.shape} and {right.shape}")
    if not np.isfinite([left, right]).all():
        raise ValueError("values must be finite")
    n = len(left)
    if n < 3 or not (np.ptp(left) and np.ptp(right)):
        nothing = _estimate(None, np.full(resamples, np.nan), n)
        return {kind: Correlation(kind, nothing, None) for kind in kinds}
    samples: dict[str, list[Floats]] = {kind: [] for kind in kinds}
    for rows in draws(n, resamples, seed):
        constant = (np.ptp(left[rows], axis=1) == 0) | (np.ptp(right[rows], axis=1) == 0)
        for kind in kinds:
            values = np.full(len(rows), np.nan)
            values[~constant] = _BY_ROWS[kind](left, right, rows[~constant])
            samples[kind].append(values)
    results = {}
    for kind in kinds:
        value = float(_BY_ROWS[kind](left, right, np.arange(n, dtype=np.int32)[None])[0])
        p = p_values.of_tau(left, right) if kind == "kendall" else p_values.of_r(value, n)
        results[kind] = Correlation(kind, _estimate(value, np.concatenate(samples[kind]), n), p)
    return results


def draws(n: int, resamples: int, seed: int) -> Iterator[Draws]:
    """The resamples of n things: (some, n) row numbers at a time, a few MiB each; equal for equal arguments."""
    rng = np.random.default_rng([seed, 0])  # [seed, 1] draws the seeds of training: two streams from one seed
    at_once = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, at_once):
        yield rng.integers(n, size=(min(at_once, resamples - start), n), dtype=np.int32)


def resampled_means(values: Floats, resamples: int, seed: int) -> Floats:
    """Means of the columns of ``values`` (n, k) in each of the :func:`draws`: (resamples, k)."""
    columns = np.ascontiguousarray(values.T)
    means = []
    for rows in draws(len(values), resamples, seed):
        times = _times_drawn(rows)
        # column by column and without BLAS: each mean is the same, to the bit, whatever stands beside it
        means.append(np.stack([np.einsum("rn,n->r", times, column) for column in columns], axis=1) / len(values))
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


def _effect_size(differences: Floats, scale: float) -> float | None:
    """Mean / standard deviation; None where the differences, of values of this scale, do not vary (or are one)."""
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return float(differences.mean()) / spread if spread > _ROUNDING * scale else None


def _estimate(value: float | None, samples: Floats, n: int, seeds: int = 1) -> Estimate:
    finite = samples[~np.isnan(samples)]
    low = high = None
    if value is not None and n > 1 and len(finite):
        low, high = map(float, np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return Estimate(value, low, high, LEVEL, n, seeds, len(samples), len(samples) - len(finite))


def _pearson_rows(x: Floats, y: Floats) -> Floats:
    """Pearson's correlation of each row of x with that of y."""
    x = x - x.mean(axis=1, keepdims=True)
    y = y - y.mean(axis=1, keepdims=True)
    return np.clip((x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1)), -1, 1)


def _pearson(x: Floats, y: Floats, rows: Draws) -> Floats:
    return _pearson_rows(x[rows], y[rows])


def _spearman(x: Floats, y: Floats, rows: Draws) -> Floats:
    return _pearson_rows(_ranks(x, rows), _ranks(y, rows))


def _ranks(values: Floats, rows: Draws) -> Floats:
    """The ranks of each row's values from 1, equal ones sharing their mean."""
    codes = np.unique(values, return_inverse=True)[1].astype(np.int32)[rows]
    times = _times_drawn(codes)
    last = times.cumsum(axis=1)
    return np.take_along_axis(last - (times - 1) / 2, codes, axis=1)


def _kendall(x: Floats, y: Floats, rows: Draws) -> Floats:
    """Kendall's tau-b of all rows at once, from how often each pair was drawn."""
    x_signs, y_signs = (np.sign(side[:, None] - side) for side in (x, y))
    counts = _times_drawn(rows)

    def total(signs: Floats) -> Floats:
        return np.asarray(((counts @ signs) * counts).sum(axis=1))

    return np.clip(total(x_signs * y_signs) / np.sqrt(total(x_signs**2) * total(y_signs**2)), -1, 1)


_BY_ROWS = {"pearson": _pearson, "spearman": _spearman, "kendall": _kendall}
