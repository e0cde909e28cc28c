"""Statistics of result rows: pure functions of numbers, paired by seed.

SciPy is needed for intervals and tests (extra `stats`), not for means. Which test says what:

- the exact binomial (sign) test counts in how many pairs one method wins; it assumes nothing else (L 3.1);
- Wilcoxon's and the permutation test use their sizes too, and have more power with few seeds;
- Holm's correction keeps the chance of one false finding among all comparisons below the level (Demsar 2006).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rekindle.core.errors import RekindleError

Numbers = NDArray[np.float64]
Alternative = Literal["greater", "less", "two-sided"]
Interval = tuple[float, float]


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
    given = _numbers(values)
    deviation = float(given.std(ddof=1)) if len(given) > 1 else math.nan
    return Spread(len(given), float(given.mean()), deviation)


def iqm(values: ArrayLike) -> float:
    """Return the interquartile mean: of the middle half, a quarter (rounded down) left out at each end.

    Example:
        >>> iqm([0.0, 1.0, 2.0, 100.0])
        1.5
    """
    return float(_iqm(_numbers(values), -1))


def _iqm(values: Numbers, axis: int) -> Any:
    given = np.sort(np.moveaxis(values, axis, -1), axis=-1)
    cut = given.shape[-1] // 4
    return given[..., cut : given.shape[-1] - cut].mean(axis=-1)


STATISTICS: dict[str, Callable[[Numbers, int], Any]] = {
    "mean": lambda values, axis: np.mean(values, axis=axis),
    "median": lambda values, axis: np.median(values, axis=axis),
    "iqm": _iqm,
}


def bootstrap_interval(
    values: ArrayLike,
    statistic: str = "mean",
    *,
    method: Literal["BCa", "percentile", "basic"] = "BCa",
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Return a confidence interval of a statistic by resampling.

    Args:
        values: One number a seed (or a pair: differences).
        statistic: "mean", "median" or "iqm".
        method: "BCa" corrects for bias and skewness, "percentile" does not.
        level: How often such an interval holds the true value, in the long run.
        resamples: How many times it is resampled.
        seed: Of the resampling.

    Returns:
        Lower and upper end; NaN for fewer than two numbers, of which no spread is known.
    """
    given = _numbers(values)
    if len(given) < 2:
        return math.nan, math.nan
    if np.ptp(given) == 0:
        return float(given[0]), float(given[0])
    function = _chosen(statistic)
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

    Args:
        groups: For each task its numbers, one a seed.
        statistic: Of all numbers together: "mean", "median" or "iqm".
        level: How often such an interval holds the true value, in the long run.
        resamples: How many times it is resampled.
        seed: Of the resampling.
    """
    generator, function = np.random.default_rng(seed), _chosen(statistic)
    given = [_numbers(group) for group in groups]
    drawn = [generator.choice(group, (resamples, len(group))) for group in given]
    samples = function(np.concatenate(drawn, axis=1), 1)  # [resamples]
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class SignTest:
    """How often the first won, and how likely that, or more, is by chance."""

    wins: int
    losses: int
    ties: int
    p: float


def sign_test(
    first: ArrayLike,
    second: ArrayLike,
    *,
    alternative: Alternative = "greater",
    ties: Literal["drop", "split"] = "drop",
) -> SignTest:
    """Test by the exact binomial distribution whether the first of two paired lists is larger (L Table 3).

    Args:
        first: Numbers of one method.
        second: Numbers of the other, in the same order of pairs.
        alternative: "greater": the first is larger; "two-sided": they differ.
        ties: Equal pairs are left out, or given half to each (an odd one is left out; Demsar 2006).

    Example:
        >>> sign_test([2, 2, 2, 2, 2], [1, 1, 1, 1, 1])
        SignTest(wins=5, losses=0, ties=0, p=0.03125)
    """
    difference = differences(first, second)
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    equal = len(difference) - wins - losses
    half = equal // 2 if ties == "split" else 0
    n = wins + losses + 2 * half
    p = needed("scipy.stats").binomtest(wins + half, n, 0.5, alternative=alternative).pvalue if n else 1.0
    return SignTest(wins, losses, equal, float(p))


def wilcoxon_test(first: ArrayLike, second: ArrayLike, *, alternative: Alternative = "greater") -> float:
    """Return the p-value of Wilcoxon's signed-rank test on pairs; 1 if all are equal."""
    difference = differences(first, second)
    if not difference.any():
        return 1.0
    return float(needed("scipy.stats").wilcoxon(difference, alternative=alternative).pvalue)


def permutation_test(
    first: ArrayLike, second: ArrayLike, *, alternative: Alternative = "greater", resamples: int = 9999, seed: int = 0
) -> float:
    """Return the p-value of the mean difference when each pair's sign is a coin; exact up to 13 pairs.

    Args:
        first: Numbers of one method.
        second: Numbers of the other, in the same order of pairs.
        alternative: "greater": the first is larger; "two-sided": they differ.
        resamples: Signs that are drawn when there are more than can be listed.
        seed: Of the draws.
    """
    difference = differences(first, second)
    if len(difference) == 1:
        return 1.0 if alternative == "two-sided" else (0.5 if _is_extreme(difference[0], alternative) else 1.0)
    found = needed("scipy.stats").permutation_test(
        (difference,),
        lambda sample, axis: np.mean(sample, axis=axis),
        permutation_type="samples",
        vectorized=True,
        alternative=alternative,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's step-down procedure.

    Example:
        >>> [round(q, 3) for q in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    corrected, highest = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = highest
    return corrected


def differences(first: ArrayLike, second: ArrayLike) -> Numbers:
    """Return first minus second, pair by pair.

    Raises:
        StatisticsError: They are not of the same length, or empty.
    """
    a, b = _numbers(first), _numbers(second)
    if len(a) != len(b):
        raise StatisticsError(
            expected="two lists of pairs", got=f"{len(a)} and {len(b)} numbers", fix="pair them by seed first"
        )
    return a - b


def _numbers(values: ArrayLike) -> Numbers:
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


def _is_extreme(value: float, alternative: Alternative) -> bool:
    return value > 0 if alternative == "greater" else value < 0
