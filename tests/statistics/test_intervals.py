"""Against cases by hand, and against listing every possibility."""

import itertools
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


def test_percentile_interval_is_that_of_all_resamples():
    """Of three numbers there are 27 resamples; the drawn ones must have the same quantiles as all."""
    values = [0.0, 1.0, 5.0]
    everything = [np.mean(sample) for sample in itertools.product(values, repeat=3)]
    low, high = st.bootstrap_interval(values, method="percentile", level=0.6)
    assert (low, high) == pytest.approx((np.quantile(everything, 0.2), np.quantile(everything, 0.8)))
    assert (low, high) == pytest.approx((2 / 3, 10 / 3))


def test_bca_by_its_formula():
    """Efron 1987, written out with the resamples' own distribution."""
    values = np.array([0.1, 0.2, 0.25, 0.9, 0.3, 0.35, 0.15])
    n, normal = len(values), stats.norm
    generator = np.random.default_rng(5)
    resamples = generator.choice(values, (200_000, n)).mean(axis=1)
    below = (resamples < values.mean()).mean() / 2 + (resamples <= values.mean()).mean() / 2
    bias = normal.ppf(below)
    left_out = np.array([np.delete(values, i).mean() for i in range(n)])
    away = left_out.mean() - left_out
    skew = (away**3).sum() / (6 * (away**2).sum() ** 1.5)

    def end(level):
        z = bias + normal.ppf(level)
        return np.quantile(resamples, normal.cdf(bias + z / (1 - skew * z)))

    low, high = st.bootstrap_interval(values, method="BCa", resamples=100_000)
    assert low == pytest.approx(end(0.025), abs=0.003) and high == pytest.approx(end(0.975), abs=0.006)
    plain = st.bootstrap_interval(values, method="percentile")
    assert high > plain[1], "a long tail to the right moves the interval there"


def test_intervals_of_nothing_to_see():
    assert st.bootstrap_interval([2, 2, 2]) == (2, 2)
    assert all(map(math.isnan, st.bootstrap_interval([2])))


def test_interval_is_repeatable():
    values = [1.0, 2.0, 4.0, 8.0]
    assert st.bootstrap_interval(values, "iqm", seed=3) == st.bootstrap_interval(values, "iqm", seed=3)


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
