"""Learning rates as they go: which parameter groups have just dropped, and which are back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch.optim import Optimizer

NEAR = 0.9  # a rate from here on counts as the highest: the tail of a cosine or a straight line is far below


class Rates:
    """Tells drops of the learning rate, as of a step schedule, from what comes down little by little.

    A drop is a fall within one step to at most `ratio` of the rate before, from near the highest rate since the last
    drop. A group is back when its rate is near its highest of all again, as after a warm-up that begins anew.
    """

    def __init__(self, optimizers: Sequence[Optimizer], ratio: float | None) -> None:
        self.optimizers, self.ratio = optimizers if ratio else (), ratio or 0.0  # not copied: they may be rebound
        self.last: list[float] = []
        self.peaks: list[float] = []  # highest since the last drop
        self.highs: list[float] = []  # highest of all

    def moved(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the ids of the parameters whose rate has just dropped, and of those whose rate is back."""
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        rates = [float(group["lr"]) for group in groups]
        if rates == self.last:
            return frozenset(), frozenset()
        self._meet(rates[len(self.last) :])
        dropped = {n for n, rate in enumerate(rates) if self._drops(n, rate)}
        back = {n for n, rate in enumerate(rates) if self.peaks[n] < NEAR * self.highs[n] <= rate}
        self.peaks = [rate if n in dropped else max(rate, self.peaks[n]) for n, rate in enumerate(rates)]
        self.highs = [max(rate, high) for rate, high in zip(rates, self.highs, strict=False)]
        self.last = rates
        return _parameters(groups, dropped), _parameters(groups, back)

    def _meet(self, new: Sequence[float]) -> None:
        """Begin with groups that were not seen before."""
        for known in (self.last, self.peaks, self.highs):
            known.extend(new)

    def _drops(self, number: int, rate: float) -> bool:
        before = self.last[number]
        return rate < before and rate <= self.ratio * before and before >= NEAR * self.peaks[number]

    def forget(self) -> None:
        """Take the rates as they are for the highest."""
        self.peaks, self.highs = list(self.last), list(self.last)

    def state_dict(self) -> dict[str, list[float]]:
        """Return what was seen."""
        return {"last": list(self.last), "peaks": list(self.peaks), "highs": list(self.highs)}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Take over what was seen."""
        self.last, self.peaks, self.highs = (list(state[name]) for name in ("last", "peaks", "highs"))


def _parameters(groups: Sequence[Mapping[str, Any]], numbers: Collection[int]) -> frozenset[int]:
    return frozenset(id(parameter) for number in numbers for parameter in groups[number]["params"])
