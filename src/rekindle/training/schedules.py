"""What the learning rate does in a stage: frozen values that give a factor for an epoch, or for a part of the stage."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rekindle.methods.frozen_settings import settings
from rekindle.methods.spec import choose, fill

Factor = Annotated[float, Field(gt=0, le=1)]


@settings
class ConstantRate:
    """The learning rate stays."""

    def factor(self, epoch: int, plateaus: int, part: float = 0.0) -> float:
        """Return what the learning rate is multiplied by in an epoch, counted from 0."""
        return 1.0


@settings
class Decay:
    """The learning rate is multiplied by `by` after each epoch."""

    by: Factor = 0.95

    def factor(self, epoch: int, plateaus: int, part: float = 0.0) -> float:
        """Return what the learning rate is multiplied by in an epoch, counted from 0."""
        return self.by**epoch


@settings
class Steps:
    """The learning rate is multiplied by `by` at the start of each of the epochs `at`, counted from 0."""

    at: tuple[int, ...] = (100, 150)
    by: Factor = 0.1

    def factor(self, epoch: int, plateaus: int, part: float = 0.0) -> float:
        """Return what the learning rate is multiplied by in an epoch, counted from 0."""
        return self.by ** sum(epoch >= start for start in self.at)


@settings
class Plateau:
    """The learning rate is multiplied by `by` whenever the validation loss was not better for `patience` epochs."""

    patience: Annotated[int, Field(ge=1)] = 20
    by: Factor = 0.5

    def factor(self, epoch: int, plateaus: int, part: float = 0.0) -> float:
        """Return what the learning rate is multiplied by after a number of plateaus."""
        return self.by**plateaus


@settings
class Linear:
    """The learning rate falls in every step, on a line from all of it to the part `to` at the end of the stage."""

    to: Factor = 0.1

    def factor(self, epoch: int, plateaus: int, part: float = 0.0) -> float:
        """Return what the learning rate is multiplied by after a part, 0 to 1, of the steps behind the warmup."""
        return 1.0 - (1.0 - self.to) * part


Schedule = ConstantRate | Decay | Steps | Plateau | Linear
SCHEDULES: dict[str, Any] = {
    "constant": ConstantRate,
    "decay": Decay,
    "steps": Steps,
    "plateau": Plateau,
    "linear": Linear,
}


def schedule(spec: str) -> Schedule:
    """Return the schedule of a spec string.

    Example:
        >>> schedule("steps:at=10|20,by=0.5").factor(epoch=10, plateaus=0)
        0.5
    """
    made: Schedule = fill(SCHEDULES[choose("schedules", spec, SCHEDULES)], spec)
    return made
