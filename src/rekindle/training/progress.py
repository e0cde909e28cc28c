"""How stages are trained, how long they are, and where the training of one stands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from rekindle.training.schedules import ConstantRate, Schedule
from rekindle.training.stage import Augmentation, Stage


@dataclass(frozen=True)
class TrainConfig:
    """How every stage is trained, as far as the stage does not say itself.

    Args:
        batch_size: Examples a step; a smaller set is taken whole, an incomplete last batch is left out.
        clip: Largest norm of the whole gradient.
        warmup: Fraction of a stage over which the learning rate rises linearly from 0.
        accumulate: Parts of a batch whose gradients are summed before a step; as one batch, in less memory.
        schedule: What the learning rate does afterwards.
        augment: Augmentation of training batches.
        precision: "float32", or "bfloat16" for autocast.
        evaluate_each: Epochs from one evaluation to the next.
    """

    batch_size: int = 256
    clip: float | None = None
    warmup: float = 0.0
    accumulate: int = 1
    schedule: Schedule = dataclasses.field(default_factory=ConstantRate)
    augment: Augmentation | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    evaluate_each: int = 1

    @property
    def part_size(self) -> int:
        """Examples that go through the model at once."""
        return max(1, self.batch_size // self.accumulate)


@dataclass
class StageProgress:
    """Where the training of a stage stands; everything that changes beside model, optimizer and Keeper.

    Attributes:
        epoch: Finished epochs.
        step: Finished steps of the epoch that is under way.
        loss: Sum of its losses so far, on the device.
        best: Best validation loss.
        since_best: Epochs since then.
        plateaus: How often the learning rate was lowered for want of progress.
        since_plateau: Epochs since the last time, or since the best loss.
        finished: Whether the stage is over.
        seconds: Time in training steps, evaluations left out.
    """

    epoch: int = 0
    step: int = 0
    loss: Tensor | float = 0.0
    best: float = math.inf
    since_best: int = 0
    plateaus: int = 0
    since_plateau: int = 0
    finished: bool = False
    seconds: float = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {**vars(self), "loss": float(self.loss)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> StageProgress:
        """Return the progress that `state_dict` told of."""
        return cls(**state)


@dataclass(frozen=True)
class Length:
    """How many steps a stage has, and how they are divided into epochs.

    Example:
        >>> Length(count=10, batch_size=4, epochs=None, steps=5).in_epoch(2)
        1
    """

    count: int
    batch_size: int
    epochs: int | None
    steps: int | None
    epoch_steps: int | None = None

    @property
    def size(self) -> int:
        """Examples a step."""
        return self.batch_size if self.epoch_steps else min(self.batch_size, self.count)

    @property
    def each(self) -> int:
        """Steps of a whole epoch."""
        return self.epoch_steps or self.count // self.size

    @property
    def total(self) -> int:
        """Steps of the stage."""
        return self.steps if self.steps is not None else (self.epochs or 0) * self.each

    @property
    def last(self) -> int:
        """Number of epochs, the last of which may be incomplete."""
        return -(-self.total // self.each)

    def in_epoch(self, epoch: int) -> int:
        """Return the number of steps in an epoch, counted from 0."""
        return min(self.each, self.total - epoch * self.each)


def length_of(stage: Stage, config: TrainConfig) -> Length:
    """Return the length of a stage."""
    return Length(len(stage.train), config.batch_size, stage.epochs, stage.steps, stage.epoch_steps)
