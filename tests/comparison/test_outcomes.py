"""Gaps and how they are told."""

import numpy as np
import pytest

from rekindle.comparison.outcomes import Gap, gap_of, shown, shown_gap


def test_a_gap_is_clear_where_the_paired_t_test_is():
    from scipy.stats import ttest_rel

    first, second = np.array([0.3, 0.1, 0.2]), np.zeros(3)
    gap, test = gap_of(first - second, 0.95), ttest_rel(first, second)
    assert (gap.low, gap.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert gap.low < 0 and test.pvalue > 0.05
    assert not gap.better and gap.promising
    assert gap_of(first - second, 0.9).better and ttest_rel(first, second).pvalue < 0.1


@pytest.mark.parametrize(("seeds", "sure"), [(2, False), (5, False), (6, True)])
def test_equal_differences_are_as_clear_as_their_number_makes_them(seeds, sure):
    gap = gap_of(np.full(seeds, 0.1), 0.95)
    assert (gap.low, gap.high) == (0.1, 0.1) and gap.better == sure and gap.promising != sure
    assert gap_of(np.full(seeds, -0.1), 0.95).worse == sure
    same = gap_of(np.zeros(seeds), 0.95)
    assert not (same.sure or same.better or same.worse or same.promising)


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize("shift", [-1.0, 0.0, 1.0])
def test_the_sign_and_the_interval(shift, level):
    noise = np.array([0.1, -0.1, 0.05, -0.05, 0.0, 0.02])
    gap = gap_of(noise + shift, level)
    assert gap.mean == pytest.approx(shift + noise.mean()) and gap.low < gap.mean < gap.high
    assert gap.better == (shift > 0) and gap.worse == (shift < 0) and not gap.promising


def test_better_worse_and_promising_by_hand():
    kinds = {
        (0.1, 0.2, True, True): "better",
        (-0.1, 0.2, False, True): "promising",
        (-0.1, 0.2, False, False): None,
        (-0.2, -0.1, True, True): "worse",
        (-0.2, 0.1, False, True): None,
    }
    for (low, high, *rest), kind in kinds.items():
        gap = Gap((low + high) / 2, low, high, *rest)
        assert [name for name in ("better", "worse", "promising") if getattr(gap, name)] == ([kind] if kind else [])


def test_accuracies_are_told_in_percent_and_other_scores_as_they_are():
    gap = Gap(0.012, -0.0046, 0.0284, False, False)
    assert shown_gap(gap, "accuracy") == "+1.2 [-0.5, 2.8]"
    assert shown_gap(gap, "minus loss") == "+0.012 [-0.0046, 0.0284]"
    assert shown_gap(None, "accuracy") == ""
    assert shown(-0.5, "accuracy", "+") == "-50.0" and shown(-5.9981, "minus loss") == "-5.998"
