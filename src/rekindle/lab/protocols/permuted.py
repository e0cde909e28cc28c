"""Permuted images: task after task, each with its own order of pixels (Dohare et al. 2024; Kumar et al. 2023).

Every task is equally hard, so that a network that learns later ones worse has lost plasticity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rekindle.lab.data.dataset import Dataset, examples_of
from rekindle.lab.data.subsets import shuffled
from rekindle.methods.frozen_settings import settings
from rekindle.seeds import generator, seed_of
from rekindle.training.examples import Examples
from rekindle.training.stage import Stage

Count = Annotated[int, Field(ge=1)]


@settings
class Permuted:
    """As many stages as tasks. The network is told nothing: no boundary, and the optimizer goes on, unless asked.

    With one epoch a stage's `train_loss` is the loss on examples before they are learned: the online loss.

    Args:
        tasks: Number of permutations; the first one too is a permutation.
        images: Training examples of each task, drawn anew for each; all if left out.
        epochs: Passes over them.
        boundary: Whether one-shot methods act between tasks.

    Example:
        >>> from rekindle.lab.data import load
        >>> first, second = Permuted(tasks=2, images=100).stages(load("digits"), seed=0)
        >>> len(first.train), first.test.batch(slice(1)).equal(second.test.batch(slice(1)))
        (100, False)
    """

    key: ClassVar[str] = "permuted"

    tasks: Count = 10
    images: Count | None = None
    epochs: Count = 1
    boundary: bool = False

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield the tasks; the seed decides permutations and examples."""
        given, test = examples_of(data.train), examples_of(data.test)
        size = given.inputs[0].numel()
        for task in range(self.tasks):
            order = torch.randperm(size, generator=generator(seed, f"task {task}", "permutation"))
            train = given
            if self.images is not None:
                train = shuffled(train, seed_of(seed, f"task {task}", "examples")).take(slice(self.images))
            yield Stage(
                f"task {task + 1}",
                _permuted(train, order),
                _permuted(test, order),
                epochs=self.epochs,
                boundary=self.boundary and task > 0,
                fresh_optimizer=self.boundary and task > 0,
            )


@dataclass(frozen=True, eq=False)
class _Permute:
    order: Tensor

    def __call__(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1)[:, self.order.to(inputs.device)].view_as(inputs)


def _permuted(examples: Examples, order: Tensor) -> Examples:
    return replace(examples, change=_Permute(order))
