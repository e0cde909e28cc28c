"""Against cases by hand, and against listing every possibility."""

import itertools
import sys

import numpy as np
import pytest

from rekindle.statistics import significance as st
from rekindle.statistics.intervals import StatisticsError

stats = pytest.importorskip("scipy.stats", reason="scipy is not installed: pip install 'rekindle[stats]'")


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


def test_pairs_are_checked():
    with pytest.raises(StatisticsError, match="2 and 3 numbers"):
        st.sign_test([1, 2], [1, 2, 3])


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(StatisticsError, match=r"rekindle\[stats\]"):
        st.sign_test([1], [0])


@pytest.mark.parametrize(("rivals", "seeds"), [(1, 5), (2, 6), (3, 6), (5, 7), (10, 8)])
def test_so_many_seeds_can_refute_a_claim_after_holm(rivals, seeds):
    assert st.seeds_needed(rivals) == seeds
    for n, settles in ((seeds, True), (seeds - 1, False)):
        for test in (lambda *pair: st.sign_test(*pair).p, st.permutation_test):
            p = test(np.arange(1.0, n + 1), np.zeros(n))  # all seeds on one side
            assert (st.holm([p] + [1.0] * (rivals - 1))[0] < 0.05) == settles


def test_both_sides_and_other_levels_need_more_seeds():
    assert st.seeds_needed(1, alternative="two-sided") == 6 and st.seeds_needed(1, 0.01) == 7
    for rivals, alpha in ((0, 0.05), (2, 0.0), (2, 1.0)):
        with pytest.raises(StatisticsError, match="at least one rival"):
            st.seeds_needed(rivals, alpha)
