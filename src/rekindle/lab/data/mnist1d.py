"""Ten shapes on a line, in the manner of MNIST-1D (Greydanus 2020): hard for its size, drawn in a moment, no download.

Each example is a template of 12 points that is padded with a random number of zeros, scaled, moved around in a circle,
disturbed by smooth and by independent noise, sheared and resampled to 40 points. The kind and size of the disturbances
are those of MNIST-1D; the templates and the draws are our own, so numbers are not comparable with published ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rekindle.lab.data.dataset import Dataset
from rekindle.seeds import generator
from rekindle.training.examples import Examples

POINTS = 12
PADDING = (36, 60)  # zeros after the template, smallest and largest number
SCALE = 0.4  # largest relative change of height
MOVE = 48  # largest shift, in points, before resampling
SMOOTH_NOISE, NOISE = 0.25, 0.02
SHEAR = 0.75
LENGTH = 40


def templates() -> Tensor:
    """Return the ten shapes, `[10, 12]`: sums of two waves and a slope, each of mean 0 and largest height 6."""
    x = torch.linspace(0, 1, POINTS)
    waves = (
        (1, 0, 0),
        (0, 0, 4),
        (2, 0.5, 1),
        (1, 1, -2),
        (0.5, 1.5, 0),
        (1.5, 0, -3),
        (0, 2, 2),
        (3, 0, 0),
        (2, 1, -1),
    )
    shapes = [a * torch.sin(2 * math.pi * x) + b * torch.cos(3 * math.pi * x) + c * (x - 0.5) for a, b, c in waves]
    shapes[7] = torch.sin(4 * math.pi * x)  # a second full wave instead of the same one, higher
    shapes.append(torch.where((x - 0.5).abs() < 0.2, 1.0, -0.5))  # a box
    made = torch.stack([shape - shape.mean() for shape in shapes])
    return 6 * made / made.abs().amax(dim=1, keepdim=True)


def load_mnist1d(train: int = 4000, test: int = 1000, draw: int = 42) -> Dataset:
    """Draw the set.

    Args:
        train: Number of training examples.
        test: Number of test examples.
        draw: Seed of the whole set.

    Example:
        >>> data = load_mnist1d(train=20, test=10)
        >>> data.shape, data.classes, len(data.test)
        ((40,), 10, 10)
    """
    first, second = [_draw(name, count, draw) for name, count in (("train", train), ("test", test))]
    return Dataset("mnist1d", first, second, classes=10)


def _draw(name: str, count: int, draw: int) -> Examples:
    random = generator(draw, f"mnist1d.{name}", "draw")
    labels = torch.randint(10, (count,), generator=random)
    shapes = templates()[labels]
    lengths = POINTS + torch.randint(PADDING[0], PADDING[1] + 1, (count,), generator=random)
    height = 1 + SCALE * (torch.rand(count, generator=random) - 0.5)
    moves = torch.randint(MOVE, (count,), generator=random)
    inputs = torch.zeros(count, LENGTH)
    for length in range(POINTS + PADDING[0], POINTS + PADDING[1] + 1):  # few lengths, many examples: one batch each
        which = (lengths == length).nonzero().flatten()
        line = torch.zeros(len(which), length)
        line[:, :POINTS] = shapes[which] * height[which, None]
        inputs[which] = _disturb(_move(line, moves[which]), random)
    return Examples((inputs - inputs.mean()) / inputs.std(), labels)


def _move(line: Tensor, moves: Tensor) -> Tensor:
    places = (torch.arange(line.shape[1]) - moves[:, None]) % line.shape[1]
    return line.gather(1, places)


def _disturb(line: Tensor, random: torch.Generator) -> Tensor:
    count, length = line.shape
    rough = torch.randn(count, length, generator=random)
    line = line + SMOOTH_NOISE * _smooth(rough)
    line = line + NOISE * torch.randn(count, length, generator=random)
    slope = SHEAR * (torch.rand(count, 1, generator=random) - 0.5)
    line = line - slope * torch.linspace(-0.5, 0.5, length)
    return torch.nn.functional.interpolate(line[:, None], size=LENGTH, mode="linear", align_corners=True)[:, 0]


def _smooth(rough: Tensor, width: float = 2.0) -> Tensor:
    reach = torch.arange(-8, 9)
    window = torch.exp(-((reach / width) ** 2) / 2)
    padded = torch.nn.functional.pad(rough[:, None], (8, 8), mode="reflect")
    return torch.nn.functional.conv1d(padded, (window / window.sum()).view(1, 1, -1))[:, 0]
