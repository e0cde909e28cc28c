"""Examples in memory: inputs and labels, and how a batch of them is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and their labels.

    Args:
        inputs: uint8 in 0..255 or float32, `[n, ...]`; images are `[n, channels, height, width]`.
        labels: int64, `[n]`.
        change: What makes the task from the stored inputs, batch by batch: a blur, a resize.
        normalize: The last thing that is done to a batch.
    """

    inputs: Tensor
    labels: Tensor
    change: Change | None = None
    normalize: Change | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input as a network sees it."""
        return tuple(self.batch(slice(1)).shape[1:])

    def take(self, which: Tensor | slice) -> Examples:
        """Return some of the examples; a slice is a view, indices are a copy."""
        return replace(self, inputs=_some(self.inputs, which), labels=_some(self.labels, which))

    def to(self, device: torch.device | str) -> Examples:
        """Return the examples on a device."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def draw(self, steps: int, size: int, random: torch.Generator) -> Tensor:
        """Return the examples of each step of an epoch, `[steps, size]`: each at most once, in random order."""
        return random_order(len(self), steps, size, random).to(self.labels.device)

    def pair(self, which: Tensor | slice, augment: Change | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs as a network gets them, and their labels."""
        return self.batch(which, augment), _some(self.labels, which)

    def in_order(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all examples in batches, made when they are asked for: not all of them in memory at once."""
        for start in range(0, len(self), size):
            yield self.pair(slice(start, start + size))

    def batch(self, which: Tensor | slice, augment: Change | None = None) -> Tensor:
        """Return inputs as a network gets them: float32, changed, augmented, normalized.

        Example:
            >>> examples = Examples(torch.tensor([[[[255]]]], dtype=torch.uint8), torch.tensor([3]))
            >>> examples.batch(slice(1), augment=lambda images: images / 2).item()
            0.5
        """
        inputs = as_float(_some(self.inputs, which))
        for step in (self.change, augment, self.normalize):
            inputs = inputs if step is None else step(inputs)
        return inputs


def random_order(count: int, steps: int, size: int, random: torch.Generator) -> Tensor:
    """Return which of `count` examples each step takes, `[steps, size]`; what does not fill a step is left out."""
    return torch.randperm(count, generator=random)[: steps * size].view(steps, size)


def _some(values: Tensor, which: Tensor | slice) -> Tensor:
    """Return some of the values; `index_select` is 3 to 4 times faster than brackets (`benchmarks/loop.py batches`)."""
    if isinstance(which, Tensor) and which.dtype == torch.long and which.dim() == 1:
        return values.index_select(0, which)
    return values[which]


def as_float(inputs: Tensor) -> Tensor:
    """Return inputs as float32; uint8 becomes 0..1.

    Example:
        >>> as_float(torch.tensor([0, 255], dtype=torch.uint8)).tolist()
        [0.0, 1.0]
    """
    return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs
