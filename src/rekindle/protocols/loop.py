"""The one plain training loop: the only caller of `backward` and of the optimizer's `step`. It knows no method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rekindle.core.errors import RekindleError
from rekindle.core.seeds import generator


@dataclass(frozen=True)
class Budget:
    """How long and how fast a stage is trained.

    Args:
        steps: Number of optimizer steps.
        batch_size: Images a step; a smaller data set is taken whole.
        learning_rate: Of Adam.
        clip: Largest norm of the whole gradient, or None for no clipping.
    """

    steps: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-3
    clip: float | None = None

    def __post_init__(self) -> None:
        clipped = self.clip is None or self.clip > 0
        if self.steps < 0 or self.batch_size < 1 or self.learning_rate <= 0 or not clipped:
            raise RekindleError(
                expected="steps >= 0, batch_size >= 1, learning_rate > 0, and clip > 0 or None",
                got=str(self),
                fix="correct the number that is out of its range",
            )


def train(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    budget: Budget,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    seed: int = 0,
) -> list[float]:
    """Train a classifier on tensors in memory.

    Args:
        model: Changed in place, and left in training mode.
        inputs: All inputs, `[n, ...]`.
        labels: All labels, `[n]`.
        budget: Steps, batch size, learning rate, clipping.
        optimizer: Yours, with its own learning rate; a fresh Adam when left out.
        seed: Decides the order of the examples; the global generator is not touched.

    Returns:
        The loss of each step, before the step.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> losses = train(model, torch.eye(2), torch.arange(2), Budget(steps=50, learning_rate=0.1))
        >>> len(losses), losses[-1] < losses[0]
        (50, True)
    """
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=budget.learning_rate)
    order = batches(len(labels), budget.batch_size, generator(seed, "batches", "shuffle"))
    losses: list[Tensor] = []
    model.train()
    for _, batch in zip(range(budget.steps), order, strict=False):
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs[batch]), labels[batch])
        loss.backward()
        if budget.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), budget.clip)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist() if losses else []


def batches(count: int, batch_size: int, random: torch.Generator) -> Iterator[Tensor]:
    """Yield index batches without end: every epoch a new order, an incomplete last batch is left out.

    Example:
        >>> [len(batch) for batch, _ in zip(batches(5, 2, torch.Generator()), range(3))]
        [2, 2, 2]
    """
    size = min(batch_size, count)
    while True:
        order = torch.randperm(count, generator=random)  # [count]
        yield from order[: count // size * size].split(size)


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor, batch_size: int = 1024) -> float:
    """Return the fraction of inputs whose largest output is their label; the model's mode is kept.

    Example:
        >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
        0.75
    """
    was_training = model.training
    model.eval()
    parts = zip(inputs.split(batch_size), labels.split(batch_size), strict=True)
    correct = sum(int((model(part).argmax(dim=1) == target).sum()) for part, target in parts)
    model.train(was_training)
    return correct / len(labels)
