"""Means, deviations and intervals of a few numbers, one for each seed.

`mean_interval` is the one interval of a mean: tables, pages, verdicts and the papers' rules all call it. It is
Student's at every number of seeds. Resampling three to ten seeds covers the true mean in 72 to 91% of cases when it
says 95, because a resample has less spread than its source; so `bootstrap_interval` asks for more than 30 numbers.

SciPy is needed for intervals (extra `stats`), not for means.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rekindle.errors import RekindleError

Numbers = NDArray[np.float64]
Interval = tuple[float, float]
FEW = 30  # so few numbers are not resampled: at 30, a bootstrap interval of 95% covers about 94%


class StatisticsError(RekindleError):
    """Numbers from which nothing can be said."""


def needed(module: str) -> Any:
    """Import a package of the extra `stats`.

    Raises:
        StatisticsError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise StatisticsError(
            expected=f"the package {module.partition('.')[0]}, for intervals, tests and trees",
            got="an installation without it",
            fix="pip install 'rekindle[stats]'",
        ) from None


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of n numbers; the deviation of a single one is NaN."""

    n: int
    mean: float
    deviation: float


def spread(values: ArrayLike) -> Spread:
    """Return number, mean and sample standard deviation (n - 1).

    Example:
        >>> spread([1.0, 2.0, 3.0])
        Spread(n=3, mean=2.0, deviation=1.0)
    """
    given = numbers_of(values)
    deviation = float(given.std(ddof=1)) if len(given) > 1 else math.nan
    return Spread(len(given), float(given.mean()), deviation)


def iqm(values: ArrayLike) -> float:
    """Return the interquartile mean: of the middle half, a quarter (rounded down) left out at each end.

    Example:
        >>> iqm([0.0, 1.0, 2.0, 100.0])
        1.5
    """
    return float(_iqm(numbers_of(values), -1))


def _iqm(values: Numbers, axis: int) -> Any:
    given = np.sort(np.moveaxis(values, axis, -1), axis=-1)
    cut = given.shape[-1] // 4
    return given[..., cut : given.shape[-1] - cut].mean(axis=-1)


STATISTICS: dict[str, Callable[[Numbers, int], Any]] = {
    "mean": lambda values, axis: np.mean(values, axis=axis),
    "median": lambda values, axis: np.median(values, axis=axis),
    "iqm": _iqm,
}


def mean_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Return the confidence interval of a mean: Student's; of paired differences it is the one of the paired t-test.

    A single number says nothing about the spread: its interval is everything. Equal numbers show no spread: their
    interval is the point, which is no proof that another seed would give the same.

    Args:
        values: One number a seed, or one difference a pair.
        level: How often such an interval holds the true mean, in the long run; exact for normal numbers.

    Example:
        >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0])], mean_interval([2.0]), mean_interval([2.0, 2.0])
        ([-0.484, 4.484], (-inf, inf), (2.0, 2.0))
    """
    given = numbers_of(values)
    if len(given) > 1 and np.ptp(given) == 0:  # the deviation of equal numbers may be rounding, and is not a spread
        return float(given[0]), float(given[0])
    return student_interval(spread(given), level)


def student_interval(found: Spread, level: float = 0.95) -> Interval:
    """Return Student's interval of a mean; of a single number it is everything, of equal ones a point.

    Example:
        >>> [round(end, 3) for end in student_interval(Spread(n=5, mean=1.0, deviation=1.0))]
        [-0.242, 2.242]
    """
    if found.n < 2:
        return -math.inf, math.inf
    reach = float(needed("scipy.stats").t.ppf((1 + level) / 2, found.n - 1)) * found.deviation / math.sqrt(found.n)
    return found.mean - reach, found.mean + reach


def bootstrap_interval(
    values: ArrayLike,
    statistic: str = "mean",
    *,
    method: Literal["BCa", "percentile", "basic"] = "BCa",
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Return a confidence interval of a statistic by resampling, of more than 30 numbers.

    For the mean of fewer, `mean_interval`. For a median or an interquartile mean of fewer there is none here.

    Args:
        values: One number a seed (or a pair: differences).
        statistic: "mean", "median" or "iqm".
        method: "BCa" corrects for bias and skewness, "percentile" does not.
        level: How often such an interval holds the true value, in the long run.
        resamples: How many times it is resampled.
        seed: Of the resampling.

    Returns:
        Lower and upper end.

    Raises:
        StatisticsError: There are 30 numbers or fewer, of which such an interval is too narrow.
    """
    given, function = numbers_of(values), _chosen(statistic)
    if len(given) <= FEW:
        raise StatisticsError(
            expected=f"more than {FEW} numbers to resample",
            got=f"{len(given)}, of which the interval would be too narrow",
            fix="take mean_interval, which is Student's, or run more seeds",
        )
    if np.ptp(given) == 0:
        return float(given[0]), float(given[0])
    found = needed("scipy.stats").bootstrap(
        (given,),
        lambda sample, axis: function(sample, axis),
        vectorized=True,
        method=method,
        confidence_level=level,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    ends = found.confidence_interval
    if math.isnan(ends.low) or math.isnan(ends.high):  # BCa has no answer if every resample left out says the same
        return bootstrap_interval(given, statistic, method="percentile", level=level, resamples=resamples, seed=seed)
    return float(ends.low), float(ends.high)


def stratified_interval(
    groups: Sequence[ArrayLike],
    statistic: str = "iqm",
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return a percentile interval of a statistic over several tasks, resampled within each task.

    With n seeds a task it is too narrow by sqrt((n - 1) / n): a fifth at 3 seeds, a twentieth at 10.

    Args:
        groups: For each task its numbers, one a seed.
        statistic: Of all numbers together: "mean", "median" or "iqm".
        level: How often such an interval holds the true value, in the long run.
        resamples: How many times it is resampled.
        seed: Of the resampling.
    """
    generator, function = np.random.default_rng(seed), _chosen(statistic)
    given = [numbers_of(group) for group in groups]
    drawn = [generator.choice(group, (resamples, len(group))) for group in given]
    samples = function(np.concatenate(drawn, axis=1), 1)  # [resamples]
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def numbers_of(values: ArrayLike) -> Numbers:
    """Return values as a flat array of floats.

    Raises:
        StatisticsError: There is none, or one of them is not finite.
    """
    given = np.asarray(values, dtype=float).ravel()
    if not len(given) or not np.isfinite(given).all():
        raise StatisticsError(
            expected="at least one number, all of them finite",
            got=f"{len(given)} numbers, {int((~np.isfinite(given)).sum())} of them not finite",
            fix="leave runs that diverged out, or count them as the worst result, and say so",
        )
    return given


def _chosen(statistic: str) -> Callable[[Numbers, int], Any]:
    if statistic not in STATISTICS:
        raise StatisticsError(expected=f"one of {', '.join(STATISTICS)}", got=repr(statistic), fix="use one of these")
    return STATISTICS[statistic]
