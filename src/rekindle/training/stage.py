"""A stage: what is trained on, what is tested on, for how long and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rekindle.errors import RekindleError
from rekindle.training.examples import Examples
from rekindle.training.schedules import Schedule
from rekindle.training.tokens import Tokens

Augmentation = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, eq=False)
class Stage:
    """One part of a learning path.

    Args:
        name: Told in rows and in the progress bar.
        train: What is learned.
        test: What accuracy and loss are measured on.
        epochs: Passes over the training data; or
        steps: number of optimizer steps.
        boundary: Whether one-shot methods act before it.
        active: Whether per-step methods act in it.
        fresh_optimizer: Whether the optimizer's state is cleared before it.
        learning_rate: Instead of the optimizer's own.
        weight_decay: Instead of the optimizer's own.
        schedule: Instead of the run's.
        warmup: Steps over which the learning rate rises, instead of the run's part.
        rebase: Whether per-step methods take the weights as their new start when the schedule lowers the rate.
        patience: Epochs without a better validation loss after which it ends.
        validation: Held out for `patience` and schedules that look at it.
        augment: Instead of the run's augmentation.
        also: Other data to be tested on, by the name that the column gets.
        evaluate_each: Epochs from one evaluation to the next, instead of the run's.
        epoch_steps: Steps that count as an epoch, for data that are drawn without end.
        keep: Weights that are kept for later stages, by name: those after a number of steps, or of the lowest loss on
            the test data where that is None.
        start_from: Name of kept weights to begin with, or "initial" for those that the network was drawn with, instead
            of those at the end of the stage before.
        rounds: Settings with which methods count rounds (`block`, `repeat`), for those that have them.
    """

    name: str
    train: Examples | Tokens
    test: Examples | Tokens
    epochs: int | None = None
    steps: int | None = None
    boundary: bool = True
    active: bool = True
    fresh_optimizer: bool = True
    learning_rate: float | None = None
    weight_decay: float | None = None
    schedule: Schedule | None = None
    warmup: int | None = None
    rebase: bool = False
    patience: int | None = None
    validation: Examples | None = None
    augment: Augmentation | None = None
    also: Mapping[str, Examples] = field(default_factory=dict)
    evaluate_each: int | None = None
    epoch_steps: int | None = None
    keep: Mapping[str, int | None] = field(default_factory=dict)
    start_from: str | None = None
    rounds: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None) or (self.epochs or self.steps or 0) < 1:
            raise RekindleError(
                expected="either epochs or steps, at least 1",
                got=f"epochs={self.epochs}, steps={self.steps} in stage {self.name!r}",
                fix="give one of the two",
            )
        for what, examples in (("training", self.train), ("test", self.test)):
            if not len(examples):
                raise RekindleError(
                    expected=f"{what} examples in stage {self.name!r}",
                    got="none",
                    fix="take a larger fraction, fewer stages or more data",
                )
