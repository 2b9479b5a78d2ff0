"""Statistics against scipy, hand-worked examples, naive loops and simulations with a known truth."""

import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.stats.losses import KINDS, correlations, draws, holm, paired_t_test, relative_loss, relative_losses

RNG = np.random.default_rng(7)
RECIPROCAL_RANKS = np.array([0, *(1 / rank for rank in range(1, 11))])

chances = st.integers(0, 10**9).map(lambda value: value / 10**9)
"""Values of measures: none is so small that its square is 0."""


def drawn(rng, *shape):
    """In and Out like RR@10: many zeros, paired, Out the lower."""
    inside = rng.choice(RECIPROCAL_RANKS, p=[0.4, 0.2, *[0.4 / 9] * 9], size=shape)
    return inside, np.where(rng.random(shape) < 0.8, inside, rng.choice(RECIPROCAL_RANKS, size=shape) / 2)


def population(size=100_000):
    return drawn(np.random.default_rng(11), size)


# ---------------------------------------------------------------- t-test


def test_t_test_is_scipys():
    inside, out = drawn(RNG, 500)
    ours = paired_t_test(inside, out)
    theirs = scipy.stats.ttest_1samp(inside - out, 0)
    assert (ours.n, ours.difference) == (500, pytest.approx((inside - out).mean()))
    assert (ours.t, ours.p) == (pytest.approx(theirs.statistic), pytest.approx(theirs.pvalue))
    assert ours.d * math.sqrt(500) == pytest.approx(ours.t)


def test_effect_size_by_hand():
    # differences 1, 2, 3: mean 2, standard deviation 1
    assert paired_t_test([3, 4, 6], [2, 2, 3]).d == pytest.approx(2)


def test_the_t_test_of_several_seeds_is_over_queries():
    inside, out = drawn(RNG, 3, 40)
    assert paired_t_test(inside, out) == paired_t_test(inside.mean(axis=0), out.mean(axis=0))
    assert paired_t_test(inside, out).n == 40


def test_equivalence_is_two_one_sided_t_tests_of_scipys():
    inside, out = drawn(RNG, 500)
    out = 0.7 * inside + 0.3 * out
    bounds = (out - 0.95 * inside, 1.05 * inside - out)
    theirs = max(scipy.stats.ttest_1samp(side, 0, alternative="greater").pvalue for side in bounds)
    assert paired_t_test(inside, out).p_equivalent == pytest.approx(theirs)
    assert 1e-4 < theirs < 0.99


def test_equivalence_is_statsmodels_where_in_does_not_vary():
    # ttost_paired(out, inside, -0.025, 0.025) of statsmodels 0.15.0, for inside = 0.5
    out = [0.50, 0.49, 0.52, 0.51, 0.48, 0.50, 0.53, 0.47, 0.50, 0.51]
    assert paired_t_test([0.5] * 10, out).p_equivalent == pytest.approx(0.0010947191359561767)


@given(st.lists(st.tuples(chances, chances), min_size=3, max_size=30), st.floats(0.1, 10))
def test_what_is_shown_to_be_equivalent_lies_within_the_margin_whatever_the_unit(pairs, unit):
    inside, out = np.array(pairs).T
    tested = paired_t_test(inside, out)
    if tested.p_equivalent is not None and tested.p_equivalent < 0.5:
        assert abs(tested.difference) < 0.05 * inside.mean()
    scaled = paired_t_test(unit * inside, unit * out).p_equivalent
    assert scaled == (tested.p_equivalent and pytest.approx(tested.p_equivalent, abs=1e-6))


@pytest.mark.parametrize(
    ("inside", "out", "difference"),
    [([0.5], [0.2], 0.3), ([0.1, 0.7], [0.1, 0.7], 0), ([0.3, 0.4, 0.7], [0.2, 0.3, 0.6], 0.1), ([0, 0], [0, 0], 0)],
)
def test_differences_that_do_not_vary_have_no_t(inside, out, difference):
    tested = paired_t_test(inside, out)
    assert tested.difference == pytest.approx(difference)
    assert (tested.t, tested.p, tested.d) == (None, None, None)


# ---------------------------------------------------------------- Holm


def test_holm_by_hand():
    # in order 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1 gives 0.02, 0.03, 0.06, 0.04, and never less than before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_counts_tests_that_could_not_be_made():
    assert holm([0.01, None, 0.02]) == [pytest.approx(0.03), None, pytest.approx(0.04)]
    assert holm([]) == []


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


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_p_value(wrong):
    with pytest.raises(ValueError, match=r"0\.\.1"):
        holm([0.1, wrong])


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
    for estimate, value, resampled in zip(
        (loss.inside, loss.out, loss.rel_loss), values, (ins, outs, losses), strict=True
    ):
        assert estimate.value == pytest.approx(value)
        assert [estimate.low, estimate.high] == pytest.approx(list(np.quantile(resampled, [0.025, 0.975])))
        assert (estimate.n, estimate.seeds, estimate.resamples, estimate.undefined) == (30, 1, 400, 0)


@pytest.mark.parametrize("n", [2, 1_000, 700_000, 1_100_000])
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
    inside, out = population()
    truths = inside.mean(), out.mean(), (inside.mean() - out.mean()) / inside.mean()
    hits = np.zeros(3)
    trials = 2_000
    for trial in range(trials):
        sample = rng.integers(len(inside), size=400)
        loss = relative_loss(inside[sample], out[sample], resamples=1_000, seed=trial)
        estimates = loss.inside, loss.out, loss.rel_loss
        hits += [one.low <= truth <= one.high for one, truth in zip(estimates, truths, strict=True)]
    print("coverage of In, Out, Rel Loss:", hits / trials)
    assert np.all((hits / trials >= 0.93) & (hits / trials <= 0.97))


def test_seeds_as_a_second_level_widen_the_interval():
    inside, out = (np.tile(side, (4, 1)) for side in drawn(RNG, 300))
    out = np.clip(out + np.array([[-0.1], [0.0], [0.05], [0.1]]), 0, 1)  # seeds differ, on all queries alike
    seeded = relative_loss(inside, out)
    averaged = relative_loss(inside.mean(axis=0), out.mean(axis=0))
    assert seeded.rel_loss.value == pytest.approx(averaged.rel_loss.value)
    assert (seeded.rel_loss.n, seeded.rel_loss.seeds) == (300, 4)

    def width(estimate):
        return estimate.high - estimate.low

    assert width(seeded.rel_loss) > 1.5 * width(averaged.rel_loss)
    assert width(seeded.inside) == pytest.approx(width(averaged.inside))  # In is the same for all seeds


def test_the_spread_of_seeds_is_that_of_two_crossed_factors():
    """Queries without spread: the variance is (S - 1) / S of that of a mean over S seeds."""
    of_seed = np.array([0.2, 0.3, 0.35, 0.4, 0.6])
    inside, out = np.ones((5, 50)), np.tile(of_seed[:, None], (1, 50))
    estimate = relative_loss(inside, out, resamples=40_000).out
    assert (estimate.high - estimate.low) / 2 == pytest.approx(1.96 * of_seed.std() / math.sqrt(5), rel=0.05)


def test_in_of_zero_gives_no_loss_and_no_infinity():
    loss = relative_loss([0, 0, 0], [0.5, 0, 0], resamples=100)
    assert (loss.rel_loss.value, loss.rel_loss.low, loss.rel_loss.high) == (None, None, None)
    assert loss.rel_loss.undefined == 100
    assert loss.inside.value == 0


def test_resamples_in_which_in_is_zero_are_counted_and_left_out():
    loss = relative_loss([1, 0, 0], [0.5, 0, 0], resamples=10_000).rel_loss
    assert loss.undefined / 10_000 == pytest.approx((2 / 3) ** 3, abs=0.02)
    assert (loss.value, loss.low, loss.high) == (0.5, 0.5, 0.5)


def test_the_loss_of_a_measure_of_which_lower_is_better_is_negative():
    assert relative_loss([10.0, 20.0], [15.0, 30.0]).rel_loss.value == pytest.approx(-0.5)


def test_one_query_has_no_interval():
    loss = relative_loss([0.5], [0.25])
    assert (loss.rel_loss.value, loss.rel_loss.low, loss.rel_loss.n) == (0.5, None, 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(chances, chances), min_size=2, max_size=20), st.floats(0.01, 100))
def test_rel_loss_does_not_depend_on_the_unit(pairs, factor):
    values = np.array(pairs).T
    plain, scaled = (relative_loss(*side, resamples=50).rel_loss for side in (values, values * factor))
    assert plain.undefined == scaled.undefined
    if plain.value is not None:
        assert [plain.value, plain.low, plain.high] == pytest.approx(
            [scaled.value, scaled.low, scaled.high], rel=1e-6, abs=1e-9
        )


@pytest.mark.parametrize(
    ("inside", "out", "why"),
    [
        ([1, 2], [1], "equal shapes"),
        ([], [], "equal shapes"),
        ([[1, 2]], [1, 2], "equal shapes"),
        ([1, math.nan], [1, 2], "finite"),
        ([1, 2], [1, math.inf], "finite"),
    ],
)
def test_pairs_that_are_none_are_refused(inside, out, why):
    for function in (paired_t_test, relative_loss):
        with pytest.raises(ValueError, match=why):
            function(inside, out)


def test_entries_of_different_test_sets_are_refused():
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
    ours = correlations(x, y, resamples=300, seed=2)
    rows = np.concatenate(list(draws(n, 300, 2)))
    for kind, theirs in zip(KINDS, (scipy.stats.pearsonr, scipy.stats.spearmanr, scipy.stats.kendalltau), strict=True):
        value, p = theirs(x, y)
        assert (ours[kind].estimate.value, ours[kind].p) == (pytest.approx(value), pytest.approx(p))
        assert ours[kind].estimate.n == n
        varied = [row for row in rows if len(set(x[row])) > 1 and len(set(y[row])) > 1]
        interval = np.quantile([theirs(x[row], y[row])[0] for row in varied], [0.025, 0.975])
        assert [ours[kind].estimate.low, ours[kind].estimate.high] == pytest.approx(list(interval))
        assert ours[kind].estimate.undefined == 300 - len(varied)


def test_degenerate_resamples_are_counted():
    found = correlations([1, 2, 3], [1, 2, 3], resamples=9_000)
    for correlation in found.values():
        assert correlation.estimate.undefined / 9_000 == pytest.approx(3 / 27, abs=0.01)
        assert correlation.estimate.low == pytest.approx(1)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1, 2], [2, 1]), ([1, 1, 1, 1], [1, 2, 3, 4])])
def test_no_correlation_of_two_pairs_or_of_a_constant(x, y):
    for correlation in correlations(x, y).values():
        assert (correlation.estimate.value, correlation.estimate.low, correlation.p) == (None, None, None)
        assert (correlation.estimate.n, correlation.estimate.undefined) == (len(x), 10_000)


def test_order_of_the_pairs_does_not_matter_for_the_value():
    x, y = RNG.normal(size=(2, 30))
    order = RNG.permutation(30)
    for kind in KINDS:
        plain, shuffled = (
            correlations(*pair, kinds=[kind], resamples=10)[kind] for pair in ((x, y), (x[order], y[order]))
        )
        assert plain.estimate.value == pytest.approx(shuffled.estimate.value)


def test_figure_3_of_ecir_2023():
    """The higher the published Jaccard of a topic, the lower SPLADE's published loss: without exception."""
    jaccard, losses = [0.3334, 0.2632, 0.3686, 0.3217, 0.4701], [6.3, 12.2, 3.2, 6.4, 1.4]
    found = correlations(jaccard, losses)
    assert (found["spearman"].estimate.value, found["kendall"].estimate.value) == (pytest.approx(-1), pytest.approx(-1))
    assert -1 <= found["pearson"].estimate.low <= found["pearson"].estimate.value < -0.9


def test_what_is_no_two_plain_lists_of_numbers_is_refused():
    for x, y in (([1, 2], [1]), (np.ones((2, 3)), np.ones((2, 3))), ([[1, 2]], [1, 2])):
        with pytest.raises(ValueError, match="plain lists"):
            correlations(x, y)
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            correlations([1, wrong], [1, 2])


def test_the_command_line_starts_without_scipy_and_models():
    heavy = "print({'scipy', 'sentence_transformers', 'torch'} & set(sys.modules))"
    code = f"import sys, eval_kit.cli; {heavy}; import eval_kit.stats.similarity, eval_kit.stats.intervals; {heavy}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\nset()\n"
