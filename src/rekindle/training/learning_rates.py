"""The learning rate of each step: the optimizer's own times what schedule, warmup and stage make of it."""

from __future__ import annotations

import math

from torch.optim import Optimizer

from rekindle.training.progress import Length, StageProgress, TrainConfig
from rekindle.training.schedules import Schedule
from rekindle.training.stage import Stage


def remember_rates(optimizer: Optimizer) -> None:
    """Note the learning rates and weight decays that the optimizer was made with, from which all others follow."""
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
        group.setdefault("initial_weight_decay", group.get("weight_decay", 0.0))


def set_rates(optimizer: Optimizer, stage: Stage, factor: float) -> None:
    """Set the learning rates for a step; a stage's own rate is that of the first group, others keep their ratio."""
    first = optimizer.param_groups[0]["initial_lr"]
    factor = factor if stage.learning_rate is None else factor * stage.learning_rate / first
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor
        if "weight_decay" in group:
            own = group["initial_weight_decay"]
            group["weight_decay"] = own if stage.weight_decay is None else stage.weight_decay


def rising_steps(stage: Stage, config: TrainConfig, length: Length) -> int:
    """Return the number of steps over which the learning rate rises: the stage's own, or the run's part of them."""
    return math.ceil(config.warmup * length.total) if stage.warmup is None else stage.warmup


def rate_factor(schedule: Schedule, rising: int, length: Length, progress: StageProgress) -> float:
    """Return what the learning rate is multiplied by in the step that comes next.

    Args:
        schedule: What it does after the warmup.
        rising: Steps over which it rises linearly from 0.
        length: Of the stage.
        progress: Where it stands.

    Example:
        >>> from rekindle.training.schedules import Linear
        >>> length = Length(count=64, batch_size=16, epochs=None, steps=12)
        >>> [round(rate_factor(Linear(to=0.1), 2, length, StageProgress(step=n)), 2) for n in (0, 1, 2, 7, 12)]
        [0.5, 1.0, 1.0, 0.55, 0.1]
    """
    done = progress.epoch * length.each + progress.step
    part = max(0, done - rising) / max(1, length.total - rising)
    factor = schedule.factor(progress.epoch, progress.plateaus, part)
    return factor * min(1.0, (done + 1) / rising) if rising else factor
