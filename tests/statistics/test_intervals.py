"""Against cases by hand, and against listing every possibility."""

import math

import numpy as np
import pytest

from rekindle.statistics import intervals as st

stats = pytest.importorskip("scipy.stats", reason="scipy is not installed: pip install 'rekindle[stats]'")


def test_spread_by_hand():
    made = st.spread([2, 4, 4, 4, 5, 5, 7, 9])
    assert (made.n, made.mean) == (8, 5)
    assert made.deviation == pytest.approx(math.sqrt(32 / 7))
    assert math.isnan(st.spread([3]).deviation)


@pytest.mark.parametrize("n", range(1, 14))
def test_iqm_is_the_trimmed_mean(n):
    values = np.random.default_rng(n).normal(size=n)
    assert st.iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


@pytest.mark.parametrize("n", [3, 5, 10])
def test_an_interval_of_few_seeds_covers_what_it_says(n):
    """Of 4000 intervals of 95%, between 93 and 97 in a hundred must hold the truth; a bootstrap's were 72 to 91."""
    samples = 3.0 + 2.0 * np.random.default_rng(n).normal(size=(4000, n))
    ends = np.array([st.mean_interval(sample) for sample in samples])
    assert 0.93 < ((ends[:, 0] <= 3.0) & (ends[:, 1] >= 3.0)).mean() < 0.97


@pytest.mark.parametrize("level", [0.9, 0.99])
def test_the_interval_of_a_mean_is_that_of_the_paired_t_test(level):
    first, second = np.random.default_rng(0).normal(size=(2, 40))
    for n in (2, 5, 40):
        found = stats.ttest_rel(first[:n], second[:n]).confidence_interval(level)
        assert st.mean_interval(first[:n] - second[:n], level) == pytest.approx(tuple(found))


def test_one_number_says_nothing_of_the_spread_and_equal_ones_show_none():
    assert st.mean_interval([2.0]) == (-math.inf, math.inf)
    assert st.mean_interval([2.0, 2.0]) == (2.0, 2.0)
    assert st.mean_interval([0.1] * 3) == (0.1, 0.1), "not 0.1 plus a rounding error"


MANY = np.array([0.1, 0.2, 0.25, 0.9, 0.3, 0.35, 0.15] * 5)


def test_bootstrap_by_its_formula():
    """Efron 1987, written out with the resamples' own distribution."""
    n, normal = len(MANY), stats.norm
    generator = np.random.default_rng(5)
    resamples = generator.choice(MANY, (200_000, n)).mean(axis=1)
    below = (resamples < MANY.mean()).mean() / 2 + (resamples <= MANY.mean()).mean() / 2
    bias = normal.ppf(below)
    left_out = np.array([np.delete(MANY, i).mean() for i in range(n)])
    away = left_out.mean() - left_out
    skew = (away**3).sum() / (6 * (away**2).sum() ** 1.5)

    def end(level):
        z = bias + normal.ppf(level)
        return np.quantile(resamples, normal.cdf(bias + z / (1 - skew * z)))

    low, high = st.bootstrap_interval(MANY, method="BCa", resamples=100_000)
    assert low == pytest.approx(end(0.025), abs=0.002) and high == pytest.approx(end(0.975), abs=0.002)
    plain = st.bootstrap_interval(MANY, method="percentile")
    assert plain == pytest.approx(np.quantile(resamples, [0.025, 0.975]), abs=0.004)
    assert high > plain[1], "a long tail to the right moves the interval there"


@pytest.mark.parametrize("n", [1, 2, 10, 30])
def test_few_numbers_are_not_resampled(n):
    with pytest.raises(st.StatisticsError, match="more than 30 numbers"):
        st.bootstrap_interval(np.arange(float(n)))


def test_a_bootstrap_is_repeatable_and_of_equal_numbers_a_point():
    assert st.bootstrap_interval(MANY, "iqm", seed=3) == st.bootstrap_interval(MANY, "iqm", seed=3)
    assert st.bootstrap_interval([2] * 31) == (2, 2)


def test_stratified_interval_resamples_within_groups():
    assert st.stratified_interval([[1, 1], [5, 5]], "mean") == (3, 3), "no spread within groups, none at all"
    low, high = st.stratified_interval([[0, 1], [10, 11]], "mean", level=0.99, resamples=4000)
    assert (low, high) == (5, 6), "each extreme has a chance of 1/16"


@pytest.mark.parametrize("values", [[], [1, math.nan], [math.inf]])
def test_numbers_are_checked(values):
    with pytest.raises(st.StatisticsError, match="finite"):
        st.spread(values)


def test_statistics_are_known_by_name():
    with pytest.raises(st.StatisticsError, match="one of mean, median, iqm"):
        st.bootstrap_interval([1, 2], "mode")


def test_student_interval_is_that_of_scipy():
    values = [1.0, 2.0, 4.0, 4.5]
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert st.student_interval(st.spread(values)) == pytest.approx(expected)
    assert st.student_interval(st.spread([1.0])) == (-math.inf, math.inf)
