"""What a loader gives: examples to learn from and others to be tested on, in memory."""

from __future__ import annotations

from collections.abc import Callable
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
        normalise: The last thing that is done to a batch.
    """

    inputs: Tensor
    labels: Tensor
    change: Change | None = None
    normalise: Change | None = None

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

    def batch(self, which: Tensor | slice, augment: Change | None = None) -> Tensor:
        """Return inputs as a network gets them: float32, changed, augmented, normalised.

        Example:
            >>> examples = Examples(torch.tensor([[[[255]]]], dtype=torch.uint8), torch.tensor([3]))
            >>> examples.batch(slice(1), augment=lambda images: images / 2).item()
            0.5
        """
        inputs = as_float(_some(self.inputs, which))
        for step in (self.change, augment, self.normalise):
            inputs = inputs if step is None else step(inputs)
        return inputs


def _some(values: Tensor, which: Tensor | slice) -> Tensor:
    """Return some of the values; `index_select` is 3 to 4 times faster than brackets (`benchmarks/loop.py batches`)."""
    if isinstance(which, Tensor) and which.dtype == torch.long and which.dim() == 1:
        return values.index_select(0, which)
    return values[which]


@dataclass(frozen=True)
class Normalise:
    """Subtract a mean and divide by a deviation, one of each per channel.

    Example:
        >>> Normalise((0.5,), (0.25,))(torch.ones(1, 1, 2, 2)).flatten().tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Return normalised images, `[n, channels, height, width]`."""
        mean, std = (images.new_tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return images.sub(mean).div_(std)

    def of_gray(self) -> Normalise:
        """Return the normalisation for the mean of all channels; the deviation is about the mean one."""
        return Normalise((sum(self.mean) / len(self.mean),), (sum(self.std) / len(self.std),))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set by name.

    Args:
        name: As it was asked for.
        train: To learn from.
        test: To be tested on.
        classes: Number of classes.
    """

    name: str
    train: Examples
    test: Examples
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input as a network sees it."""
        return self.train.shape

    def with_train(self, train: Examples) -> Dataset:
        """Return the same data set with other training examples."""
        return replace(self, train=train)


def as_float(inputs: Tensor) -> Tensor:
    """Return inputs as float32; uint8 becomes 0..1.

    Example:
        >>> as_float(torch.tensor([0, 255], dtype=torch.uint8)).tolist()
        [0.0, 1.0]
    """
    return inputs.float().div_(255) if inputs.dtype == torch.uint8 else inputs


def measure_normalise(inputs: Tensor) -> Normalise:
    """Return the normalisation that gives each channel mean 0 and deviation 1 over all images `[n, c, h, w]`.

    Example:
        >>> measure_normalise(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
        Normalise(mean=(0.5,), std=(0.5,))
    """
    mean, std = [], []
    for channel in range(inputs.shape[1]):  # by channel: a float64 copy of all would be large
        values = as_float(inputs[:, channel])
        mean.append(float(values.double().mean()) if values.numel() < 1e7 else float(values.mean()))
        std.append(max(float(values.std(correction=0)), 1e-6))
    return Normalise(tuple(mean), tuple(std))
