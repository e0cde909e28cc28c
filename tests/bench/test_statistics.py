"""Against cases by hand, and against listing every possibility."""

import itertools
import math
import sys

import numpy as np
import pytest

from rekindle.bench import statistics as st

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


def coin_p(wins, n):
    """Chance of so many wins or more, by listing all ways in which n coins can fall."""
    return sum(sum(fall) >= wins for fall in itertools.product([0, 1], repeat=n)) / 2**n


@pytest.mark.parametrize(("wins", "losses"), [(5, 0), (4, 1), (3, 7), (0, 3), (9, 3)])
def test_sign_test_lists_all_coins(wins, losses):
    first = np.array([1.0] * wins + [0.0] * losses + [7.0] * 2)
    second = np.array([0.0] * wins + [1.0] * losses + [7.0] * 2)
    made = st.sign_test(first, second)
    assert (made.wins, made.losses, made.ties) == (wins, losses, 2)
    assert made.p == pytest.approx(coin_p(wins, wins + losses))
    split = st.sign_test(first, second, ties="split")
    assert split.p == pytest.approx(coin_p(wins + 1, wins + losses + 2))


def test_sign_test_of_equals():
    assert st.sign_test([1, 2], [1, 2]).p == 1


def test_sign_test_of_both_sides():
    assert st.sign_test([1] * 5, [0] * 5, alternative="two-sided").p == pytest.approx(2 / 32)
    assert st.sign_test([1] * 5, [0] * 5, alternative="less").p == 1


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_permutation_test_lists_all_signs(n):
    gap = np.random.default_rng(n).normal(0.5, 1, n)
    means = np.array([np.mean(gap * signs) for signs in itertools.product([1, -1], repeat=n)])
    assert st.permutation_test(gap, np.zeros(n)) == pytest.approx((means >= gap.mean() - 1e-12).mean())
    both = (np.abs(means) >= abs(gap.mean()) - 1e-12).mean()
    assert st.permutation_test(gap, np.zeros(n), alternative="two-sided") == pytest.approx(both)


def test_wilcoxon_lists_all_signs():
    gap = np.array([0.3, -0.1, 0.7, 0.9, -0.2])
    ranks = np.abs(gap).argsort().argsort() + 1
    sums = [ranks @ np.array(signs) for signs in itertools.product([0, 1], repeat=5)]
    expected = np.mean([total >= ranks[gap > 0].sum() for total in sums])
    assert st.wilcoxon_test(gap, np.zeros(5)) == pytest.approx(expected)
    assert st.wilcoxon_test([1, 2], [1, 2]) == 1


def test_holm_by_hand():
    # 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 = 0.04, which may not fall below the 0.06 before it
    assert st.holm([0.04, 0.01, 0.005, 0.03]) == pytest.approx([0.06, 0.03, 0.02, 0.06])
    assert st.holm([0.9, 0.8]) == [1, 1] and st.holm([]) == []


def test_holm_rejects_what_the_step_down_rejects():
    """The procedure in words: go up from the smallest until one exceeds level / (number left)."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        p, left = list(generator.uniform(0, 0.1, 6)), 6
        rejected = set()
        for value in sorted(p):
            if value >= 0.05 / left:
                break
            rejected.add(value)
            left -= 1
        assert {value for value, q in zip(p, st.holm(p), strict=True) if q < 0.05} == rejected


def test_holm_is_that_of_statsmodels():
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="statsmodels is not installed")
    p = np.random.default_rng(1).uniform(0, 0.2, 30)
    assert st.holm(list(p)) == pytest.approx(list(multitest.multipletests(p, method="holm")[1]))


@pytest.mark.parametrize("values", [[], [1, math.nan], [math.inf]])
def test_numbers_are_checked(values):
    with pytest.raises(st.StatisticsError, match="finite"):
        st.spread(values)


def test_pairs_are_checked():
    with pytest.raises(st.StatisticsError, match="2 and 3 numbers"):
        st.sign_test([1, 2], [1, 2, 3])
    with pytest.raises(st.StatisticsError, match="one of mean, median, iqm"):
        st.bootstrap_interval([1, 2], "mode")


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(st.StatisticsError, match=r"rekindle\[stats\]"):
        st.sign_test([1], [0])
