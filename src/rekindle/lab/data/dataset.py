"""What a loader gives: examples to learn from and others to be tested on, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from rekindle.errors import RekindleError
from rekindle.training.examples import Examples, as_float
from rekindle.training.tokens import Tokens


@dataclass(frozen=True)
class Normalize:
    """Subtract a mean and divide by a deviation, one of each per channel.

    Example:
        >>> import torch
        >>> Normalize((0.5,), (0.25,))(torch.ones(1, 1, 2, 2)).flatten().tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Return normalized images, `[n, channels, height, width]`."""
        mean, std = (images.new_tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return images.sub(mean).div_(std)

    def of_gray(self) -> Normalize:
        """Return the normalization for the mean of all channels; the deviation is about the mean one."""
        return Normalize((sum(self.mean) / len(self.mean),), (sum(self.std) / len(self.std),))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set by name.

    Args:
        name: As it was asked for.
        train: To learn from: examples in memory, or tokens on disk.
        test: To be tested on.
        classes: Number of classes; the vocabulary, for tokens.
    """

    name: str
    train: Examples | Tokens
    test: Examples | Tokens
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input as a network sees it."""
        return self.train.shape

    def with_train(self, train: Examples | Tokens) -> Dataset:
        """Return the same data set with other training examples."""
        return replace(self, train=train)


def examples_of(data: Examples | Tokens) -> Examples:
    """Return examples as they are, for what can be done with them only.

    Raises:
        RekindleError: They are tokens.

    Example:
        >>> import torch
        >>> len(examples_of(Examples(torch.zeros(3, 2), torch.zeros(3))))
        3
    """
    if isinstance(data, Tokens):
        raise RekindleError(
            expected="examples with a label each, such as images: they are divided, mixed or changed here one by one",
            got=f"streams of tokens: {', '.join(data.streams)}",
            fix="take a data set of images here, or a protocol and settings for text",
        )
    return data


def measure_normalize(inputs: Tensor) -> Normalize:
    """Return the normalization that gives each channel mean 0 and deviation 1 over all images `[n, c, h, w]`.

    Example:
        >>> import torch
        >>> measure_normalize(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
        Normalize(mean=(0.5,), std=(0.5,))
    """
    mean, std = [], []
    for channel in range(inputs.shape[1]):  # by channel: a float64 copy of all would be large
        values = as_float(inputs[:, channel])
        mean.append(float(values.double().mean()) if values.numel() < 1e7 else float(values.mean()))
        std.append(max(float(values.std(correction=0)), 1e-6))
    return Normalize(tuple(mean), tuple(std))
