"""The one plain training loop: the only caller of `backward` and of the optimizer's `step`. It knows no method.

Data lie in memory on the device and are indexed, not loaded. Every order and every augmentation is drawn from a
generator named by stage, epoch and step, so that where training stands is a few numbers: `StageProgress`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.keeper import Keeper
from rekindle.observe.visit import size_of
from rekindle.seeds import generator
from rekindle.training import replicas
from rekindle.training.evaluation import Row, TrainingError, evaluate, evaluation, loss_of
from rekindle.training.examples import Change, Examples
from rekindle.training.learning_rates import rate_factor, remember_rates, rising_steps, set_rates
from rekindle.training.progress import Length, StageProgress, TrainConfig, length_of
from rekindle.training.schedules import Plateau, Schedule
from rekindle.training.stage import Augmentation, Stage
from rekindle.training.tokens import Tokens


def train(
    model: nn.Module,
    optimizer: Optimizer,
    stage: Stage,
    config: TrainConfig,
    progress: StageProgress,
    *,
    keeper: Keeper | None = None,
    seed: int = 0,
    after_step: Callable[[], None] | None = None,
    after_epoch: Callable[[Row | None], None] | None = None,
) -> None:
    """Train a model on a stage from where it stands, to the end of the stage.

    Args:
        model: Changed in progress.
        optimizer: With its own learning rates, see `remember_rates`.
        stage: What to train on.
        config: What the stage does not say.
        progress: Where to begin; moved along.
        keeper: Methods that act in every step.
        seed: Decides order and augmentations.
        after_step: Called after each step but the last of an epoch, when everything is in a state to be saved.
        after_epoch: Called after each epoch with its row, or None where nothing was evaluated.

    Raises:
        TrainingError: The loss is not finite any more.

    Example:
        >>> from rekindle.training.examples import Examples
        >>> stage = Stage("all", Examples(torch.eye(2), torch.arange(2)), Examples(torch.eye(2), torch.arange(2)), 50)
        >>> model = nn.Linear(2, 2)
        >>> train(model, torch.optim.Adam(model.parameters(), lr=0.1), stage, TrainConfig(), StageProgress())
        >>> evaluate(model, stage.test)[0]
        1.0
    """
    length, schedule = length_of(stage, config), stage.schedule or config.schedule
    augment, rising = stage.augment or config.augment, rising_steps(stage, config, length)
    remember_rates(optimizer)
    progress.finished = progress.finished or progress.epoch >= length.last
    while not progress.finished:
        begun = time.perf_counter()
        model.train()
        if progress.step == 0 and keeper is not None and stage.rebase and _lowered(schedule, progress):
            keeper.rebase()
        place = f"{stage.name}, epoch {progress.epoch}"
        order = stage.train.draw(length.each, length.size, generator(seed, place, "order"))  # [steps, batch]
        for step in range(progress.step, length.in_epoch(progress.epoch)):
            random = generator(seed, f"{place}, step {step}", "augment") if augment else None
            replicas.seed_dropout(seed, f"{place}, step {step}")
            set_rates(optimizer, stage, rate_factor(schedule, rising, length, progress))
            optimizer.zero_grad()
            batch = replicas.own_share(order[step])
            loss = _backward(model, stage.train, batch, config, _bound(augment, random), keeper)
            progress.loss = progress.loss + replicas.mean(loss)
            if config.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            if keeper is not None:
                keeper.step()
            progress.step += 1
            if after_step is not None and progress.step < length.in_epoch(progress.epoch):
                progress.seconds, begun = progress.seconds + time.perf_counter() - begun, time.perf_counter()
                after_step()
        progress.loss = float(progress.loss)  # the one synchronization of an epoch
        progress.seconds += time.perf_counter() - begun
        row = _finish_epoch(model, stage, config, length, schedule, progress)
        if after_epoch is not None:
            after_epoch(row)


def _backward(
    model: nn.Module,
    data: Examples | Tokens,
    batch: Tensor,
    config: TrainConfig,
    augment: Change | None,
    keeper: Keeper | None,
) -> Tensor:
    """Add the gradient of a batch's mean loss and of the penalty, in as many parts as asked; return the loss."""
    parts, total = batch.chunk(config.accumulate), torch.zeros(())
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        with replicas.exchanged(model, last):
            inputs, labels = data.pair(part, augment)
            loss = loss_of(model, inputs, labels, config.precision)
            loss = loss if len(parts) == 1 else loss * (len(part) / len(batch))
            total = loss.detach() if len(parts) == 1 else total.to(loss.device) + loss.detach()
            if last and keeper is not None:
                loss = loss + keeper.penalty()
            loss.backward()
    return total


def train_on(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[Any],
    loss: Callable[[nn.Module, Any], Tensor],
    *,
    keeper: Keeper | None = None,
) -> float:
    """Train a model on batches in a form of the user's own, one step each, and return the mean loss over samples.

    A model in training mode keeps the modes of its parts, some of which may be frozen on purpose.

    Args:
        model: Changed in progress.
        optimizer: With its own learning rates.
        batches: As `loss` takes them.
        loss: Function (model, batch) -> scalar, a mean over the batch.
        keeper: Methods that act in every step.

    Raises:
        TrainingError: The loss is not finite any more.

    Example:
        >>> model, batch = nn.Linear(2, 2), (torch.eye(2), torch.arange(2))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> train_on(model, optimizer, [batch] * 3, lambda model, batch: loss_of(model, *batch)) > 0
        True
    """
    if not model.training:
        model.train()
    total: Tensor | float = 0.0
    steps = samples = 0
    for batch in batches:
        value = loss(model, batch)
        total = total + size_of(batch) * value.detach()
        if keeper is not None:
            value = value + keeper.penalty()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if keeper is not None:
            keeper.step()
        steps += 1
        samples += size_of(batch)
    mean = float(total) / max(1, samples)
    if not math.isfinite(mean):
        raise TrainingError(
            expected="a finite loss",
            got=f"a mean of {mean} over {steps} steps",
            fix="take a smaller learning rate, or a weaker setting of the method",
        )
    return mean


def _finish_epoch(
    model: nn.Module, stage: Stage, config: TrainConfig, length: Length, schedule: Schedule, progress: StageProgress
) -> Row | None:
    """Move on to the next epoch; evaluate if it is due."""
    mean = float(progress.loss) / progress.step
    if not math.isfinite(mean):
        raise TrainingError(
            expected="a finite loss",
            got=f"{mean} in epoch {progress.epoch + 1} of {stage.name!r}",
            fix="take a smaller learning rate, a clip, or a weaker setting of the method",
        )
    factor = rate_factor(schedule, rising_steps(stage, config, length), length, progress)
    progress.epoch, progress.step, progress.loss = progress.epoch + 1, 0, 0.0
    held = None if stage.validation is None else evaluate(model, stage.validation, config.precision)[1]
    _watch_progress(held, schedule, stage.patience, progress)
    progress.finished = progress.finished or progress.epoch >= length.last
    each = stage.evaluate_each or config.evaluate_each
    if not progress.finished and progress.epoch % each:
        return None
    row: Row = {"epoch": progress.epoch, "step": min(progress.epoch * length.each, length.total), "train_loss": mean}
    row |= evaluation(model, stage, config.precision) | {"rate_factor": factor, "stage_seconds": progress.seconds}
    return row if held is None else row | {"validation_loss": held}


def _watch_progress(held: float | None, schedule: Schedule, patience: int | None, progress: StageProgress) -> None:
    if held is None:
        return
    better = held < progress.best
    progress.best = min(held, progress.best)
    progress.since_best = 0 if better else progress.since_best + 1
    progress.since_plateau = 0 if better else progress.since_plateau + 1
    if isinstance(schedule, Plateau) and progress.since_plateau >= schedule.patience:
        progress.plateaus, progress.since_plateau = progress.plateaus + 1, 0
    progress.finished = patience is not None and progress.since_best >= patience


def _lowered(schedule: Schedule, progress: StageProgress) -> bool:
    now, before = (schedule.factor(epoch, progress.plateaus) for epoch in (progress.epoch, max(0, progress.epoch - 1)))
    return now < before


def _bound(augment: Augmentation | None, random: torch.Generator | None) -> Callable[[Tensor], Tensor] | None:
    if augment is None or random is None:
        return None
    return lambda images: augment(images, random)
