"""What came of one way to go on, and how it differs from another: numbers, and how they are told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rekindle.statistics.intervals import Spread, bootstrap_interval, needed


@dataclass(frozen=True)
class Gap:
    """A mean difference of scores, paired by seed; above zero is better.

    Resampling a handful of seeds gives intervals that are too narrow (of two seeds, half of them miss the truth), so a
    difference is called clear only if a paired t-test at the same level agrees.

    Attributes:
        mean: The mean difference.
        low: Lower end of its bootstrap interval.
        high: Upper end.
        sure: Whether the t-test agrees.
    """

    mean: float
    low: float
    high: float
    sure: bool

    @property
    def better(self) -> bool:
        """Whether it is clearly above zero."""
        return self.sure and self.low > 0

    @property
    def worse(self) -> bool:
        """Whether it is clearly below zero."""
        return self.sure and self.high < 0

    @property
    def promising(self) -> bool:
        """Whether it looks better, though that is not clear."""
        return self.low > 0 and not self.sure


def gap_of(differences: NDArray[np.float64], level: float) -> Gap:
    """Return the gap of paired differences.

    Example:
        >>> gap_of(np.array([1.0, 3.0]), 0.95).better, gap_of(np.array([1.0, 1.1, 1.2, 1.1, 1.0]), 0.95).better
        (False, True)
    """
    mean = float(differences.mean())
    sure = mean != 0 if np.ptp(differences) == 0 else _t_test(differences) < 1 - level
    return Gap(mean, *bootstrap_interval(differences, level=level), sure)


def _t_test(differences: NDArray[np.float64]) -> float:
    return float(needed("scipy.stats").ttest_1samp(differences, 0).pvalue)


@dataclass(frozen=True)
class Outcome:
    """What came of one way to go on.

    Attributes:
        method: Its name; "none" for going on untreated, "fresh" for a fresh start.
        score: Number, mean and deviation over seeds at the end.
        to_none: Difference to going on untreated; None for that itself.
        to_fresh: Difference to the fresh start; None for that itself, and where it failed.
        p: Of the exact sign test that it is better than going on (one-sided); None for that itself.
        p_holm: The same after Holm's correction for all ways.
        after: Mean score right after the treatment, before the training.
        seconds: Median time of treatment and training.
        cost: The same, relative to going on.
    """

    method: str
    score: Spread
    to_none: Gap | None
    to_fresh: Gap | None
    p: float | None
    p_holm: float | None
    after: float
    seconds: float
    cost: float


def shown(value: float, score: str, sign: str = "") -> str:
    """Return a score, or a difference with its sign; accuracies in percent.

    Example:
        >>> shown(0.912, "accuracy"), shown(0.01, "minus loss", "+")
        ('91.2', '+0.01')
    """
    return f"{100 * value:{sign}.1f}" if score == "accuracy" else f"{value:{sign}.3g}"


def shown_gap(gap: Gap | None, score: str) -> str:
    """Return a difference with its interval; nothing if there is none."""
    if gap is None:
        return ""
    return f"{shown(gap.mean, score, '+')} [{shown(gap.low, score)}, {shown(gap.high, score)}]"
