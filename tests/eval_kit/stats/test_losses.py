"""Statistics against scipy, hand-worked examples, naive loops and simulations with a known truth."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from eval_kit.stats.figure import Figure
from eval_kit.stats.losses import (
    difference_of_losses,
    draws,
    error_of_loss,
    holm,
    p_equivalent,
    paired_t_test,
    relative_loss,
    relative_losses,
    simultaneous,
    spearman,
)

RNG = np.random.default_rng(7)
SIDES = ((0.025, "greater"), (-0.025, "less"))
RECIPROCAL_RANKS = np.array([0, *(1 / rank for rank in range(1, 11))])

chances = st.integers(0, 10**9).map(lambda value: value / 10**9)
"""Values of measures: none is so small that its square is 0."""


def drawn(rng, *shape):
    """In and Out like RR@10: many zeros, paired, Out the lower."""
    inside = rng.choice(RECIPROCAL_RANKS, p=[0.4, 0.2, *[0.4 / 9] * 9], size=shape)
    return inside, np.where(rng.random(shape) < 0.8, inside, rng.choice(RECIPROCAL_RANKS, size=shape) / 2)


# ---------------------------------------------------------------- t-test


def test_t_test_is_scipys():
    inside, out = drawn(RNG, 500)
    ours = paired_t_test(inside, out)
    theirs = scipy.stats.ttest_1samp(inside - out, 0)
    assert ours.p == pytest.approx(theirs.pvalue)


def test_the_t_test_counts_seeds_that_differ():
    """No loss, three trainings that differ by 10 points, 400 queries: over queries alone, half would be significant."""
    random, found = np.random.default_rng(3), []
    for _ in range(400):
        queries, cells = random.normal(0, 0.3, 400), random.normal(0, 0.3, (3, 400))
        differences = queries + cells + random.normal(0, 0.1, 3)[:, None]
        alone = paired_t_test(differences.mean(axis=0), np.zeros(400)).p
        found.append((alone < 0.05, paired_t_test(differences, np.zeros((3, 400))).p < 0.05))
    alone, both = np.mean(found, axis=0)
    assert both <= 0.09 < 0.4 < alone


def test_seeds_that_differ_in_nothing_leave_the_test_to_the_queries():
    inside, out = (np.tile(side, (3, 1)) for side in drawn(RNG, 40))
    ours, alone = paired_t_test(inside, out), paired_t_test(inside[0], out[0])
    assert ours.p == pytest.approx(alone.p)


@pytest.mark.parametrize("seeds", [None, 3])
def test_the_difference_of_two_losses_is_that_of_a_bootstrap(seeds):
    shape = (400,) if seeds is None else (seeds, 400)
    first, second = drawn(RNG, *shape), drawn(RNG, *shape)
    found = difference_of_losses(first, second)
    losses = relative_losses({"first": first, "second": second})
    assert found.value == pytest.approx(losses["first"][2].value - losses["second"][2].value)
    if seeds is None:
        sides = np.stack([*first, *second], axis=1)
        drawn_again = [sides[row].mean(axis=0) for rows in draws(400, 2_000, 0) for row in rows]
        resampled = [d / c - b / a for a, b, c, d in drawn_again]
        assert found.interval == pytest.approx(tuple(np.quantile(resampled, [0.025, 0.975])), abs=0.01)
        assert error_of_loss(*first)[0] == pytest.approx(np.std([1 - b / a for a, b, _, _ in drawn_again]), rel=0.1)
    assert difference_of_losses(first, first) == Figure()  # nothing varies
    assert difference_of_losses(first, (np.zeros(shape), np.zeros(shape))) == Figure()


def test_equivalence_is_two_one_sided_t_tests_of_scipys_and_statsmodels_where_in_does_not_vary():
    inside, out = drawn(RNG, 500)
    out = 0.7 * inside + 0.3 * out
    bounds = (out - 0.95 * inside, 1.05 * inside - out)
    theirs = max(scipy.stats.ttest_1samp(side, 0, alternative="greater").pvalue for side in bounds)
    assert p_equivalent(inside, out, most=1e-6) == pytest.approx(theirs)
    assert 1e-4 < theirs < 0.99
    least = (0.05 * inside.mean() / 500) ** 0.5  # the error, were 5 % the loss of a few that lose all
    ts = [side.mean() / max(scipy.stats.sem(side), least) for side in bounds]
    assert p_equivalent(inside, out) == pytest.approx(max(scipy.stats.t.sf(t, 499) for t in ts))
    # ttost_paired(out, inside, -0.025, 0.025) of statsmodels 0.15.0, for inside = 0.5
    out = [0.50, 0.49, 0.52, 0.51, 0.48, 0.50, 0.53, 0.47, 0.50, 0.51] * 3
    theirs = max(scipy.stats.ttest_1samp(np.array(out) - 0.5 + side, 0, alternative=way).pvalue for side, way in SIDES)
    assert p_equivalent([0.5] * 30, out, most=1e-6) == pytest.approx(theirs)


def test_equivalence_is_not_shown_by_few_queries_that_all_change_a_little():
    """A jitter in every query says nothing of the losses that were not drawn: 43 are too few, 2,000 are enough."""
    for n, is_told in ((43, False), (2_000, True)):
        inside = np.full(n, 0.5)
        p = p_equivalent(inside, inside + 1e-3 * np.resize([1, -1], n))
        assert p is not None and (p < 0.05) == is_told
        assert p_equivalent(inside, inside) is None, "nothing changed"


def test_differences_that_do_not_vary_are_tested_by_their_signs():
    """Sixty queries that all lose the same are no doubt; two prove nothing, and one, or none that differs, has no p."""
    for n in (2, 6, 60):
        figure = paired_t_test(np.linspace(0.5, 0.9, n), np.linspace(0.2, 0.6, n))
        assert figure.p == pytest.approx(scipy.stats.binomtest(n, n).pvalue) and figure.interval == (None, None)
    for inside, out in (([0.5], [0.2]), ([0.1, 0.7], [0.1, 0.7]), ([0, 0], [0, 0])):
        assert paired_t_test(inside, out).p is None


def test_intervals_of_a_family_hold_together_and_agree_with_their_signs():
    """They are Bonferroni's; one over 0 where Holm's correction shows a difference ends there."""
    random = np.random.default_rng(4)
    sets = [scipy.stats.zscore(random.normal(size=60)) + mean for mean in (1.5, -0.8, 0.34, -0.34, 0.1)]
    figures = [paired_t_test(values, np.zeros(60)) for values in sets]
    corrected = holm([figure.p for figure in figures])
    clipped = 0
    for values, p, (ends, ours) in zip(sets, corrected, simultaneous(figures), strict=True):
        low, high = scipy.stats.t.interval(1 - 0.05 / 5, 59, values.mean(), scipy.stats.sem(values))
        if p < 0.05 and low < 0 < high:
            clipped += 1
            low, high = (0, high) if values.mean() > 0 else (low, 0)
        assert ours == p and ends == pytest.approx((low, high))
        assert (p < 0.05) == (not ends[0] < 0 < ends[1])
    assert clipped


# ---------------------------------------------------------------- Holm


def test_holm_counts_tests_that_could_not_be_made_and_refuses_what_is_no_p_value():
    assert holm([0.01, None, 0.02]) == [pytest.approx(0.03), None, pytest.approx(0.04)]
    assert holm([]) == []
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"0\.\.1"):
            holm([0.1, wrong])


@given(st.lists(chances, min_size=1, max_size=12), st.floats(0.001, 0.5), st.randoms())
def test_holm_rejects_what_the_step_down_procedure_rejects(ps, alpha, random):
    rejected, m = set(), len(ps)
    for place, index in enumerate(sorted(range(m), key=ps.__getitem__)):
        if (m - place) * ps[index] > alpha:
            break
        rejected.add(index)
    adjusted = holm(ps)
    assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected
    assert all(p <= q <= min(1, m * p) for p, q in zip(ps, adjusted, strict=True))
    order = random.sample(range(m), m)
    assert holm([ps[i] for i in order]) == [adjusted[i] for i in order]


# ---------------------------------------------------------------- bootstrap of losses


def test_bootstrap_is_the_naive_loop_over_the_same_draws():
    inside, out = drawn(RNG, 30)
    loss = relative_loss(inside, out, resamples=400, seed=5)
    ins, outs, losses = [], [], []
    for rows in draws(30, 400, 5):
        for row in rows:
            mean_in = sum(inside[i] for i in row) / 30
            mean_out = sum(out[i] for i in row) / 30
            ins.append(mean_in)
            outs.append(mean_out)
            losses.append((mean_in - mean_out) / mean_in)
    values = inside.mean(), out.mean(), (inside.mean() - out.mean()) / inside.mean()
    for figure, value, resampled in zip(loss, values, (ins, outs, losses), strict=True):
        assert (figure.value, figure.undefined) == (pytest.approx(value), 0)
        assert figure.interval == pytest.approx(tuple(np.quantile(resampled, [0.025, 0.975])))


@pytest.mark.parametrize("n", [2, 1_000, 1_100_000])
def test_draws_are_bounded_complete_and_repeatable(n):
    resamples = 3 if n > 1_000 else 3_000
    blocks = list(draws(n, resamples, 1))
    assert sum(map(len, blocks)) == resamples
    assert max(block.size for block in blocks) <= max(n, 1 << 20)
    for block, again in zip(blocks, draws(n, resamples, 1), strict=True):
        assert np.array_equal(block, again)
        assert block.shape[1] == n
        assert 0 <= block.min() <= block.max() < n
    assert not np.array_equal(blocks[0], next(draws(n, resamples, 2)))


def test_a_system_gets_the_same_interval_alone_and_among_others():
    pairs = {"one": drawn(RNG, 50), "seeded": drawn(RNG, 3, 50), "other": drawn(RNG, 50)}
    together = relative_losses(pairs, resamples=500)
    for name, pair in pairs.items():
        assert relative_loss(*pair, resamples=500) == together[name]
    assert relative_losses({}) == {}


@pytest.mark.slow
def test_the_coverage_of_95_percent_intervals_is_nominal():
    rng = np.random.default_rng(3)
    inside, out = drawn(np.random.default_rng(11), 100_000)
    truths = inside.mean(), out.mean(), (inside.mean() - out.mean()) / inside.mean()
    hits = np.zeros(3)
    trials = 1_000
    for trial in range(trials):
        sample = rng.integers(len(inside), size=400)
        loss = relative_loss(inside[sample], out[sample], resamples=500, seed=trial)
        hits += [one.interval[0] <= truth <= one.interval[1] for one, truth in zip(loss, truths, strict=True)]
    print("coverage of In, Out, Rel Loss:", hits / trials)
    assert np.all((hits / trials >= 0.93) & (hits / trials <= 0.97))


def test_the_spread_of_seeds_is_that_of_two_crossed_factors():
    """Queries without spread: the variance is (S - 1) / S of that of a mean over S seeds."""
    of_seed = np.array([0.2, 0.3, 0.35, 0.4, 0.6])
    inside, out = np.ones((5, 50)), np.tile(of_seed[:, None], (1, 50))
    of_in, of_out, loss = relative_loss(inside, out, resamples=40_000)
    assert np.diff(of_out.interval) / 2 == pytest.approx(1.96 * of_seed.std() / math.sqrt(5), rel=0.05)
    assert of_in.interval == (None, None)  # the same for all seeds
    assert loss.value == pytest.approx(0.63)


def test_losses_that_cannot_be_told_and_losses_below_zero():
    of_in, _, loss = relative_loss([0, 0, 0], [0.5, 0, 0], resamples=100)
    assert (loss, of_in.value) == (Figure(undefined=100), 0)
    _, _, loss = relative_loss([1, 0, 0], [0.5, 0, 0], resamples=10_000)  # In is zero in some resamples
    assert loss.undefined / 10_000 == pytest.approx((2 / 3) ** 3, abs=0.02)
    assert (loss.value, loss.interval) == (0.5, (None, None))  # as it would be of one query
    assert relative_loss([10.0, 20.0], [15.0, 30.0])[2].value == pytest.approx(-0.5)  # lower is better
    assert relative_loss([0.5], [0.25])[2] == Figure(0.5)


def test_pairs_that_are_none_are_refused():
    for inside, out, why in (
        ([1, 2], [1], "equal shapes"),
        ([], [], "equal shapes"),
        ([[1, 2]], [1, 2], "equal shapes"),
        ([1, math.nan], [1, 2], "finite"),
        ([1, 2], [1, math.inf], "finite"),
    ):
        for function in (paired_t_test, relative_loss):
            with pytest.raises(ValueError, match=why):
                function(inside, out)
    with pytest.raises(ValueError, match="2 and 3 queries"):
        relative_losses({"a": ([1, 2], [1, 2]), "b": ([1, 2, 3], [1, 2, 3])})


# ---------------------------------------------------------------- correlation


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [5, 40])
def test_correlations_are_scipys(n, ties):
    x, y = RNG.normal(size=(2, n))
    y += x
    if ties:
        x, y = x.round(), y.round()
    ours = spearman(x, y, resamples=300, seed=2)
    rows = np.concatenate(list(draws(n, 300, 2)))
    value, p = scipy.stats.spearmanr(x, y)
    assert ours.value == pytest.approx(value)
    assert n < 10 or ours.p == pytest.approx(p)
    varied = [row for row in rows if len(set(x[row])) > 1 and len(set(y[row])) > 1]
    interval = np.quantile([scipy.stats.spearmanr(x[row], y[row])[0] for row in varied], [0.025, 0.975])
    assert ours.interval == ((None, None) if n < 10 else pytest.approx(tuple(interval)))
    assert ours.undefined == 300 - len(varied)


def test_what_size_explains_is_taken_out():
    """The partial coefficient is that of what regressions of both sides' ranks on the size's leave."""
    size = RNG.normal(size=30)
    x, y = size + RNG.normal(0, 0.3, 30), size + RNG.normal(0, 0.3, 30)
    ranks = [scipy.stats.rankdata(side) for side in (x, y, size)]
    left = [side - np.polyval(np.polyfit(ranks[2], side, 1), ranks[2]) for side in ranks[:2]]
    value = scipy.stats.pearsonr(*left).statistic
    ours = spearman(x, y, given=size, resamples=300)
    assert ours.value == pytest.approx(value) and abs(value) < 0.5 < spearman(x, y).value
    t = value * np.sqrt(27 / (1 - value**2))
    assert ours.p == pytest.approx(2 * scipy.stats.t.sf(abs(t), 27)) and ours.interval[0] < value < ours.interval[1]


def test_a_partial_correlation_given_what_ranks_like_a_side_has_no_value():
    eight = range(1, 9)
    found = spearman(eight, [2, 1, 4, 3, 5, 6, 8, 7], given=[10 * each for each in eight], resamples=50)
    assert (found.value, found.p, found.interval) == (None, None, (None, None))


def test_no_correlation_of_two_pairs_or_of_a_constant():
    for x, y in (([], []), ([1, 2], [2, 1]), ([1, 1, 1, 1], [1, 2, 3, 4])):
        assert spearman(x, y) == Figure(undefined=10_000)
    assert spearman([1, 2, 3], [1, 3, 2], given=[2, 1, 3]).p is None


def test_what_is_no_two_plain_lists_of_numbers_is_refused():
    for x, y in (([1, 2], [1]), (np.ones((2, 3)), np.ones((2, 3))), ([[1, 2]], [1, 2])):
        with pytest.raises(ValueError, match="plain lists"):
            spearman(x, y)
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            spearman([1, wrong], [1, 2])
