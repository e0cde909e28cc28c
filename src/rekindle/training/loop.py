"""The one plain training loop: the only caller of `backward` and of the optimizer's `step`. It knows no method.

Data lie in memory on the device and are indexed, not loaded. Every order and every augmentation is drawn from a
generator named by stage, epoch and step, so that where training stands is a few numbers: `StageProgress`.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from rekindle.errors import RekindleError
from rekindle.graph.calls.model_output import logits_of
from rekindle.keeper import Keeper
from rekindle.observe.visit import size_of
from rekindle.seeds import generator
from rekindle.training.examples import Examples
from rekindle.training.schedules import ConstantRate, Plateau, Schedule
from rekindle.training.stage import Augmentation, Stage

Row = dict[str, Any]


class TrainingError(RekindleError):
    """Training came to a point from which it cannot go on."""


@dataclass(frozen=True)
class TrainConfig:
    """How every stage is trained, as far as the stage does not say itself.

    Args:
        batch_size: Examples a step; a smaller set is taken whole, an incomplete last batch is left out.
        clip: Largest norm of the whole gradient.
        warmup: Fraction of a stage over which the learning rate rises linearly from 0.
        schedule: What the learning rate does afterwards.
        augment: Augmentation of training batches.
        precision: "float32", or "bfloat16" for autocast.
        evaluate_each: Epochs from one evaluation to the next.
    """

    batch_size: int = 256
    clip: float | None = None
    warmup: float = 0.0
    schedule: Schedule = dataclasses.field(default_factory=ConstantRate)
    augment: Augmentation | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    evaluate_each: int = 1


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

    @property
    def size(self) -> int:
        """Examples a step."""
        return min(self.batch_size, self.count)

    @property
    def each(self) -> int:
        """Steps of a whole epoch."""
        return self.count // self.size

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
    return Length(len(stage.train), config.batch_size, stage.epochs, stage.steps)


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
        >>> stage = Stage("all", Examples(torch.eye(2), torch.arange(2)), Examples(torch.eye(2), torch.arange(2)), 50)
        >>> model = nn.Linear(2, 2)
        >>> train(model, torch.optim.Adam(model.parameters(), lr=0.1), stage, TrainConfig(), StageProgress())
        >>> evaluate(model, stage.test)[0]
        1.0
    """
    length, schedule = length_of(stage, config), stage.schedule or config.schedule
    augment = stage.augment or config.augment
    remember_rates(optimizer)
    progress.finished = progress.finished or progress.epoch >= length.last
    while not progress.finished:
        begun = time.perf_counter()
        model.train()
        if progress.step == 0 and keeper is not None and stage.rebase and _lowered(schedule, progress):
            keeper.rebase()
        order = order_of(length, generator(seed, f"{stage.name}, epoch {progress.epoch}", "order"))  # [steps, batch]
        order = order.to(stage.train.labels.device)
        for step in range(progress.step, length.in_epoch(progress.epoch)):
            random = (
                generator(seed, f"{stage.name}, epoch {progress.epoch}, step {step}", "augment") if augment else None
            )
            set_rates(optimizer, stage, rate_factor(schedule, config.warmup, length, progress))
            inputs = stage.train.batch(order[step], _bound(augment, random))
            loss = loss_of(model, inputs, stage.train.labels[order[step]], config.precision)
            progress.loss = progress.loss + loss.detach()
            if keeper is not None:
                loss = loss + keeper.penalty()
            optimizer.zero_grad()
            loss.backward()
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
    factor = rate_factor(schedule, config.warmup, length, progress)
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


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor, precision: str = "float32") -> Tensor:
    """Return the cross entropy of a batch; under autocast the loss itself is computed in float32."""
    return cross_entropy(outputs_of(model, inputs, precision).float(), labels)


def outputs_of(model: nn.Module, inputs: Tensor, precision: str = "float32") -> Tensor:
    """Return the logits of a batch; images are laid out channel by channel last, which is faster in both precisions."""
    if inputs.ndim == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    if precision == "float32":
        return _logits(model(inputs))
    with torch.autocast(inputs.device.type, torch.bfloat16):
        return _logits(model(inputs))


def _logits(output: Any) -> Tensor:
    logits = logits_of(output)
    if logits is None:
        raise TrainingError(
            expected="a model that gives logits: a tensor, or an output that holds them as `logits`",
            got=f"a {type(output).__name__} without",
            fix="wrap the model in a module that returns its logits",
        )
    return logits


def order_of(length: Length, random: torch.Generator) -> Tensor:
    """Return the examples of each step of an epoch, `[steps, batch]`; an incomplete last batch is left out."""
    order = torch.randperm(length.count, generator=random)
    return order[: length.each * length.size].view(length.each, length.size)


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


def rate_factor(schedule: Schedule, warmup: float, length: Length, progress: StageProgress) -> float:
    """Return what the learning rate is multiplied by in the step that comes next."""
    factor = schedule.factor(progress.epoch, progress.plateaus)
    rising = math.ceil(warmup * length.total)
    done = progress.epoch * length.each + progress.step
    return factor * min(1.0, (done + 1) / rising) if rising else factor


def _lowered(schedule: Schedule, progress: StageProgress) -> bool:
    now, before = (schedule.factor(epoch, progress.plateaus) for epoch in (progress.epoch, max(0, progress.epoch - 1)))
    return now < before


def _bound(augment: Augmentation | None, random: torch.Generator | None) -> Callable[[Tensor], Tensor] | None:
    if augment is None or random is None:
        return None
    return lambda images: augment(images, random)


def evaluation(model: nn.Module, stage: Stage, precision: str = "float32") -> Row:
    """Return accuracy and loss on the stage's test data, and accuracy on its other data."""
    accuracy_, loss = evaluate(model, stage.test, precision)
    others = {f"accuracy_{name}": evaluate(model, also, precision)[0] for name, also in stage.also.items()}
    return {"accuracy": accuracy_, "loss": loss, **others}


@torch.no_grad()
def evaluate(
    model: nn.Module, examples: Examples, precision: str = "float32", batch_size: int = 1024
) -> tuple[float, float]:
    """Return accuracy and mean cross entropy; the model's mode is kept.

    Example:
        >>> evaluate(nn.Identity(), Examples(torch.eye(4), torch.tensor([0, 1, 2, 0])))[0]
        0.75
    """
    was_training = model.training
    model.eval()
    correct, loss = 0, 0.0
    for start in range(0, len(examples), batch_size):
        part = slice(start, start + batch_size)
        inputs, labels = examples.batch(part), examples.labels[part]
        outputs = outputs_of(model, inputs, precision)
        correct += int((outputs.argmax(dim=1) == labels).sum())
        loss += float(cross_entropy(outputs.float(), labels, reduction="sum"))
    model.train(was_training)
    return correct / len(examples), loss / len(examples)
