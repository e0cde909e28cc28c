"""What came of one way to go on, and how it differs from another: numbers, and how they are told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rekindle.statistics.intervals import Spread, mean_interval
from rekindle.statistics.significance import sign_test


@dataclass(frozen=True)
class Gap:
    """A mean difference of scores, paired by seed; above zero is better.

    Attributes:
        mean: The mean difference.
        low: Lower end of its interval, which is that of a paired t-test.
        high: Upper end.
        sure: Whether the interval leaves out zero. Equal differences show no spread, their interval is a point: then
            whether the sign test at the same level says so.
        agree: Whether all seeds are on one side of zero.
    """

    mean: float
    low: float
    high: float
    sure: bool
    agree: bool

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
        """Whether it looks better, with every seed, though that is not clear."""
        return self.agree and self.mean > 0 and not self.sure


def gap_of(differences: NDArray[np.float64], level: float) -> Gap:
    """Return the gap of paired differences.

    Example:
        >>> gap_of(np.array([1.0, 3.0]), 0.95).better, gap_of(np.array([1.0, 1.1, 1.2, 1.1, 1.0]), 0.95).better
        (False, True)
    """
    low, high = mean_interval(differences, level)
    sure = low > 0 or high < 0
    if np.ptp(differences) == 0:  # with scores of a few steps, as accuracies are, two seeds are equal by chance
        sure = sign_test(differences, np.zeros(len(differences)), alternative="two-sided").p < 1 - level
    agree = bool((differences > 0).all() or (differences < 0).all())
    return Gap(float(differences.mean()), low, high, sure, agree)


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
    if score == "accuracy":
        return f"{100 * value:{sign}.1f}"
    return f"{value:{sign}.3g}" if sign else f"{value:.4g}"  # losses of several nats differ in the third decimal


def shown_gap(gap: Gap | None, score: str) -> str:
    """Return a difference with its interval; nothing if there is none."""
    if gap is None:
        return ""
    return f"{shown(gap.mean, score, '+')} [{shown(gap.low, score)}, {shown(gap.high, score)}]"
