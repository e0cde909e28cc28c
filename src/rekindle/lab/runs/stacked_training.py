"""Several learners that differ in their seed only, trained as one: their weights are stacked, multiplied in batches.

A small network spends most of a step on the way to its products, not in them; stacked, all seeds share that way. It
pays for networks such as 128-32-32-8 at full batch, not for 784-100-100-10, whose products fill the processor already.
Between stages every learner has its own network, on which methods act as always. Batched products (`torch.baddbmm`)
were faster here than `torch.func.vmap` over `functional_call`. `benchmarks/loop.py stacked` measures the gain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from rekindle.errors import SettingsError
from rekindle.lab.models.mlp import MLP
from rekindle.lab.runs.learner import Learner
from rekindle.methods.kinds import PerStepMethod
from rekindle.methods.state import MethodContext
from rekindle.seeds import generator
from rekindle.training.evaluation import Row, TrainingError
from rekindle.training.examples import Examples, random_order
from rekindle.training.learning_rates import rate_factor, remember_rates, rising_steps, set_rates
from rekindle.training.progress import Length, StageProgress, TrainConfig, length_of
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens

Penalty = Callable[[], Tensor | None]
CHUNK = 1024  # test examples of each seed at a time, as in `loop.evaluate`


class Stack(nn.Module):
    """MLPs of the same sizes as one module; each parameter has the seeds as its first dimension.

    Args:
        models: The networks; their weights are copied.

    Example:
        >>> models = [MLP([3, 4, 2]) for _ in range(5)]
        >>> inputs = torch.randn(5, 7, 3)
        >>> one = models[4](inputs[4])
        >>> bool(torch.isclose(Stack(models)(inputs)[4], one, atol=1e-6).all())
        True
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        first = models[0]
        if not all(isinstance(model, MLP) and _shapes(model) == _shapes(first) for model in models):
            raise SettingsError(
                expected="MLPs of the same sizes",
                got=", ".join(sorted({type(model).__name__ for model in models})),
                fix="train other networks one after the other",
            )
        assert isinstance(first, MLP)
        self.activation, self.layers = first.activation, len(first.layers)
        self.names = [name for name, _ in first.named_parameters()]
        self.stacked = nn.ParameterDict({_key(name): value for name, value in _stacked(models).items()})

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[seeds, batch, ...]` to logits `[seeds, batch, classes]`."""
        x = inputs.flatten(2)
        for layer in range(self.layers):
            weight, bias = (self.stacked._parameters.get(_key(f"layers.{layer}.{kind}")) for kind in ("weight", "bias"))
            assert weight is not None  # [seeds, out, in]
            x = torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)
            x = self.activation(x) if layer < self.layers - 1 else x
        return x

    def context(self, learner: Learner) -> MethodContext:
        """Return where per-step methods work: the network of one learner, with the tensors of all of them."""
        tensors = {name: self.stacked[_key(name)] for name in self.names}
        assert learner.graph is not None
        return MethodContext(learner.model, learner.graph, tensors, (), {}, 0)

    def take(self, models: Sequence[nn.Module]) -> None:
        """Take over the weights of the networks."""
        self.stacked.load_state_dict({_key(name): value for name, value in _stacked(models).items()})

    def give(self, models: Sequence[nn.Module]) -> None:
        """Give each network its weights."""
        for seed, model in enumerate(models):
            model.load_state_dict({name: self.stacked[_key(name)][seed] for name in self.names})


def _shapes(model: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, value.shape) for name, value in model.state_dict().items()]


def _stacked(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    states = [model.state_dict() for model in models]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _key(name: str) -> str:
    return name.replace(".", "_")  # a parameter's name may have no dot


@dataclass(frozen=True)
class Stacked:
    """Examples of all seeds, as networks get them.

    Args:
        inputs: `[seeds, n, ...]`.
        labels: `[seeds, n]`.
    """

    inputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, parts: Sequence[Examples | Tokens]) -> Stacked:
        """Stack examples, which must be as many for each seed."""
        inputs, labels = zip(*(part.pair(slice(None)) for part in parts), strict=True)
        return cls(torch.stack(inputs), torch.stack(labels))

    def at(self, order: Tensor) -> Stacked:
        """Return the examples `order[seed]` of each seed, `[seeds, batch]`."""
        seeds = torch.arange(len(order), device=order.device)[:, None]
        return Stacked(self.inputs[seeds, order], self.labels[seeds, order])

    def parts(self, size: int) -> list[Stacked]:
        """Return consecutive parts."""
        pairs = zip(self.inputs.split(size, 1), self.labels.split(size, 1), strict=True)
        return [Stacked(*pair) for pair in pairs]


def learn_together(
    learners: Sequence[Learner],
    make_optimizer: Callable[[nn.Module], Optimizer],
    config: TrainConfig,
    told: Sequence[Callable[[Row], None]] | None = None,
    penalties: Sequence[PerStepMethod] = (),
) -> None:
    """Train learners to the end of all stages; afterwards each has its rows, as if it had been alone.

    Everything between stages happens learner by learner. Training time is told in equal shares. What cannot be stacked
    must have been refused before, see `rekindle.lab.runs.stacked`.

    Args:
        learners: At their beginning, with stages that differ in their examples only.
        make_optimizer: Makes one for the stack that treats each element by itself: SGD, Adam.
        config: As the learners have it.
        told: For each learner, called with each new row.
        penalties: Those of the learners' methods that add a sum over elements to the loss, which is the same for a
            stack as for its networks one by one.
    """
    each = told or [lambda row: None] * len(learners)
    stack = Stack([learner.model for learner in learners])
    optimizer = make_optimizer(stack)
    running = [one.init(stack.context(learners[0])) for one in penalties]
    while not learners[0].finished:
        progress = StageProgress()
        for learner, tell in zip(learners, each, strict=True):
            learner.enter(tell)
            learner.progress = progress
        acting = running if learners[0].stage.active else []
        _train_stage(learners, stack, optimizer, config, progress, each, [one.penalty for one in acting])
        for learner in learners:
            learner.leave()


def _train_stage(
    learners: Sequence[Learner],
    stack: Stack,
    optimizer: Optimizer,
    config: TrainConfig,
    progress: StageProgress,
    told: Sequence[Callable[[Row], None]],
    penalties: Sequence[Penalty],
) -> None:
    def after_epoch(rows: list[Row]) -> None:
        stack.give([learner.model for learner in learners])
        for learner, row, tell in zip(learners, rows, told, strict=True):
            learner.tell(row, tell)

    stages = [learner.stage for learner in learners]
    stack.take([learner.model for learner in learners])
    if stages[0].fresh_optimizer:
        optimizer.state.clear()
    seeds = [learner.training_seed for learner in learners]
    train_stacked(stack, optimizer, stages, config, progress, seeds, after_epoch, penalties)


def train_stacked(
    stack: Stack,
    optimizer: Optimizer,
    stages: Sequence[Stage],
    config: TrainConfig,
    progress: StageProgress,
    seeds: Sequence[int],
    after_epoch: Callable[[list[Row]], None],
    penalties: Sequence[Penalty] = (),
) -> None:
    """Train a stack on a stage, as `loop.train` trains one network.

    Args:
        stack: Changed in progress.
        optimizer: Of the stack.
        stages: The same stage with the examples of each seed.
        config: What the stage does not say.
        progress: Moved along; its loss has one element for each seed, its seconds are the share of one.
        seeds: Decide the order. A batch of all examples is taken as it lies.
        after_epoch: Called with a row for each seed after each epoch that is evaluated.
        penalties: Give what is added to the sum of all losses.

    Raises:
        TrainingError: The loss of a seed is not finite where it is evaluated.
    """
    stage, length = stages[0], length_of(stages[0], config)
    schedule, rising = stage.schedule or config.schedule, rising_steps(stage, config, length)
    train, test = Stacked.of([s.train for s in stages]), Stacked.of([s.test for s in stages])
    remember_rates(optimizer)
    while not progress.finished:
        begun = time.perf_counter()
        batches = _batches(train, length, [(seed, f"{stage.name}, epoch {progress.epoch}") for seed in seeds])
        for step in range(length.in_epoch(progress.epoch)):
            set_rates(optimizer, stage, rate_factor(schedule, rising, length, progress))
            losses = losses_of(stack, batches(step))  # [seeds]
            progress.loss = progress.loss + losses.detach()
            optimizer.zero_grad()
            terms = [term for one in penalties if (term := one()) is not None]
            sum(terms, losses.sum()).backward()
            optimizer.step()
            progress.step += 1
        factor, means = rate_factor(schedule, rising, length, progress), progress.loss / progress.step
        progress.seconds += (time.perf_counter() - begun) / len(stages)
        progress.epoch, progress.step, progress.loss = progress.epoch + 1, 0, 0.0
        progress.finished = progress.epoch >= length.last
        if progress.finished or progress.epoch % (stage.evaluate_each or config.evaluate_each) == 0:
            same: Row = {"epoch": progress.epoch, "step": min(progress.epoch * length.each, length.total)}
            same |= {"rate_factor": factor, "stage_seconds": progress.seconds}
            after_epoch([{**same, **row} for row in _rows(stack, test, means, stage.name, progress.epoch)])


def _batches(train: Stacked, length: Length, named: Sequence[tuple[int, str]]) -> Callable[[int], Stacked]:
    """Return what gives the batch of a step; all examples as they lie, or in the order that the seeds decide."""
    if length.size == length.count:  # the order only changes how sums are rounded
        return lambda step: train
    shape = (length.count, length.each, length.size)
    orders = [random_order(*shape, generator(seed, name, "order")) for seed, name in named]
    order = torch.stack(orders).to(train.labels.device)  # [seeds, steps, batch]
    return lambda step: train.at(order[:, step])


def _rows(stack: Stack, test: Stacked, means: Tensor | float, name: str, epoch: int) -> list[Row]:
    train_losses = torch.as_tensor(means).tolist()
    for number, loss in enumerate(train_losses):
        if not math.isfinite(loss):
            raise TrainingError(
                expected="a finite loss of every seed",
                got=f"{loss} of number {number} of {len(train_losses)} up to epoch {epoch} of {name!r}",
                fix="take a smaller learning rate or a weaker setting of the method; or train one after the other, "
                "which loses only the seeds that fail",
            )
    columns = zip(train_losses, *evaluate_stacked(stack, test), strict=True)
    return [{"train_loss": train, "accuracy": accuracy, "loss": loss} for train, accuracy, loss in columns]


def losses_of(stack: Stack, batch: Stacked) -> Tensor:
    """Return the mean cross entropy of each seed."""
    each = cross_entropy(stack(batch.inputs).flatten(0, 1), batch.labels.flatten(), reduction="none")
    return each.view(batch.labels.shape).mean(1)


@torch.no_grad()
def evaluate_stacked(stack: Stack, test: Stacked) -> tuple[list[float], list[float]]:
    """Return accuracy and mean cross entropy of each seed."""
    count = test.labels.shape[1]
    correct = torch.zeros(len(test.labels), dtype=torch.int64)
    loss = torch.zeros(len(test.labels), dtype=torch.float64)
    for part in test.parts(CHUNK):
        outputs = stack(part.inputs)
        correct += (outputs.argmax(dim=2) == part.labels).sum(1).cpu()
        each = cross_entropy(outputs.flatten(0, 1), part.labels.flatten(), reduction="none")
        loss += each.view(part.labels.shape).sum(1).cpu()
    return [number / count for number in correct.tolist()], (loss / count).tolist()
