"""Gaps and how they are told."""

import numpy as np
import pytest

from rekindle.comparison.outcomes import Gap, gap_of, shown, shown_gap


def test_a_gap_is_clear_only_if_a_t_test_agrees():
    from scipy.stats import ttest_rel

    first, second = np.array([0.3, 0.1, 0.2]), np.zeros(3)
    gap = gap_of(first - second, 0.95)
    assert gap.low > 0 and ttest_rel(first, second).pvalue > 0.05
    assert not gap.better and gap.promising
    assert gap_of(np.zeros(3), 0.95).sure is False and gap_of(np.ones(3), 0.95).sure is True


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize("shift", [-1.0, 0.0, 1.0])
def test_the_sign_and_the_interval(shift, level):
    noise = np.array([0.1, -0.1, 0.05, -0.05, 0.0, 0.02])
    gap = gap_of(noise + shift, level)
    assert gap.mean == pytest.approx(shift + noise.mean()) and gap.low < gap.mean < gap.high
    assert gap.better == (shift > 0) and gap.worse == (shift < 0) and not gap.promising


def test_better_worse_and_promising_by_hand():
    kinds = {
        (0.1, 0.2, True): "better",
        (0.1, 0.2, False): "promising",
        (-0.2, -0.1, True): "worse",
        (-0.2, -0.1, False): None,
        (-0.1, 0.1, True): None,
    }
    for (low, high, sure), kind in kinds.items():
        gap = Gap((low + high) / 2, low, high, sure)
        assert [name for name in ("better", "worse", "promising") if getattr(gap, name)] == ([kind] if kind else [])


def test_accuracies_are_told_in_percent_and_other_scores_as_they_are():
    gap = Gap(0.012, -0.0046, 0.0284, False)
    assert shown_gap(gap, "accuracy") == "+1.2 [-0.5, 2.8]"
    assert shown_gap(gap, "minus loss") == "+0.012 [-0.0046, 0.0284]"
    assert shown_gap(None, "accuracy") == ""
    assert shown(-0.5, "accuracy", "+") == "-50.0" and shown(1234.5, "metric") == "1.23e+03"
