"""Tests of paired numbers, and the correction for several of them.

Which test says what:

- the exact binomial (sign) test counts in how many pairs one method wins; it assumes nothing else (L 3.1);
- Wilcoxon's and the permutation test use their sizes too, and have more power with few seeds;
- Holm's correction keeps the chance of one false finding among all comparisons below the level (Demsar 2006).

SciPy is needed for all of them (extra `stats`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rekindle.statistics.intervals import Numbers, StatisticsError, needed, numbers_of

Alternative = Literal["greater", "less", "two-sided"]


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


def seeds_needed(rivals: int, alpha: float = 0.05, *, alternative: Alternative = "greater") -> int:
    """Return the fewest paired seeds with which tests against so many rivals can be significant after Holm.

    The sign and the permutation test have no smaller p than that of a win with every seed, 1 in 2^n (both sides:
    2 in 2^n), and Holm multiplies the smallest by the number of rivals. With fewer seeds, neither "better than all
    others" nor its contrary can be shown, however large the differences are.

    Args:
        rivals: With how many others one is compared, or the number of tests in the family.
        alpha: Level of the family.
        alternative: Which side or sides the tests look at.

    Raises:
        StatisticsError: There is no rival, or the level is not between 0 and 1.

    Example:
        >>> [seeds_needed(rivals) for rivals in (1, 2, 3, 5, 10)]
        [5, 6, 6, 7, 8]
    """
    if rivals < 1 or not 0 < alpha < 1:
        raise StatisticsError(
            expected="at least one rival, and a level between 0 and 1",
            got=f"rivals={rivals}, alpha={alpha}",
            fix="count the methods that one is compared with; the usual level is 0.05",
        )
    sides = 2 if alternative == "two-sided" else 1
    return next(n for n in itertools.count(1) if holm([min(1.0, sides / 2**n)] * rivals)[0] < alpha)


def differences(first: ArrayLike, second: ArrayLike) -> Numbers:
    """Return first minus second, pair by pair.

    Raises:
        StatisticsError: They are not of the same length, or empty.
    """
    a, b = numbers_of(first), numbers_of(second)
    if len(a) != len(b):
        raise StatisticsError(
            expected="two lists of pairs", got=f"{len(a)} and {len(b)} numbers", fix="pair them by seed first"
        )
    return a - b


def _is_extreme(value: float, alternative: Alternative) -> bool:
    return value > 0 if alternative == "greater" else value < 0
