"""The synthetic signal set: three coordinates tell the class, the rest is noise (Alabdulmohsin et al. 2021, 1.1, B).

x has 128 coordinates. The label y is uniform on 0..7; the first three coordinates are its binary digits, high digit
first, as -1 and 1 times the signal strength. The other 125 are drawn from N(0, 1).
"""

from __future__ import annotations

import torch

from rekindle.lab.data.dataset import Dataset
from rekindle.seeds import generator
from rekindle.training.examples import Examples


def load_synthetic(
    signal: float = 1.0,
    train: int = 256,
    test: int = 2048,
    coordinates: int = 128,
    bits: int = 3,
    draw: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Draw the set.

    Args:
        signal: Signal strength alpha; the paper's are 0.5, 1 and 2.
        train: Number of training examples.
        test: Number of test examples; the paper does not tell its own.
        coordinates: Length of x.
        bits: Coordinates that tell the class; there are 2 to the power of `bits` classes.
        draw: A number that decides the set instead of `seed`, so that runs with different seeds share it.
        seed: Decides every draw.

    Example:
        >>> data = load_synthetic(signal=0.5)
        >>> data.shape, data.classes, sorted(set(data.train.inputs[:, 0].tolist()))
        ((128,), 8, [-0.5, 0.5])
    """
    source = seed if draw is None else draw
    first, second = [
        _draw(name, count, signal, coordinates, bits, source) for name, count in (("train", train), ("test", test))
    ]
    return Dataset(f"synthetic:signal={signal:g}", first, second, classes=2**bits)


def _draw(name: str, count: int, signal: float, coordinates: int, bits: int, seed: int) -> Examples:
    random = generator(seed, f"synthetic.{name}", "draw")
    labels = torch.randint(2**bits, (count,), generator=random)
    inputs = torch.randn(count, coordinates, generator=random)
    digits = labels[:, None] >> torch.arange(bits - 1, -1, -1) & 1  # [count, bits], high digit first
    inputs[:, :bits] = signal * (2 * digits - 1)
    return Examples(inputs, labels)
