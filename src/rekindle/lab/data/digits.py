"""The digits that come with the package: no download, loaded in milliseconds.

1,797 handwritten digits of 8 x 8 pixels: the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin
and C. Kaynak (1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0, as
distributed with scikit-learn. See `NOTICE` beside this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from rekindle.errors import RekindleError
from rekindle.seeds import generator

BRIGHTEST = 16  # pixels count the dark dots of a 4 x 4 block


@dataclass(frozen=True, eq=False)
class Split:
    """Images and labels to learn from, and others to be tested on."""

    train_images: Tensor  # [train, 1, 8, 8], float32 in 0..1
    train_labels: Tensor  # [train], int64
    test_images: Tensor  # [test, 1, 8, 8]
    test_labels: Tensor  # [test]


def load_digits(test_fraction: float = 1 / 3, seed: int = 0) -> Split:
    """Load the digits, shuffled by `seed` and divided in two.

    Args:
        test_fraction: Part of the images that is kept for testing, rounded to whole images; at least one on each side.
        seed: Decides which images are in which part, and their order.

    Example:
        >>> digits = load_digits()
        >>> tuple(digits.train_images.shape), tuple(digits.test_images.shape)
        ((1198, 1, 8, 8), (599, 1, 8, 8))
    """
    images, labels = _read()
    held_out = round(test_fraction * len(labels))
    if not 0 < held_out < len(labels):
        raise RekindleError(
            expected=f"a test fraction that leaves images on both sides of the split of {len(labels)}",
            got=f"test_fraction={test_fraction}",
            fix="take a number between 0 and 1, such as 1/3",
        )
    order = torch.randperm(len(labels), generator=generator(seed, "digits", "split"))
    test, train = order[:held_out], order[held_out:]
    return Split(images[train], labels[train], images[test], labels[test])


def _read() -> tuple[Tensor, Tensor]:
    with (resources.files("rekindle.lab.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
        images = torch.from_numpy(arrays["images"])  # [1797, 8, 8, 1], uint8
        labels = torch.from_numpy(arrays["labels"])  # [1797], int64
    return images.permute(0, 3, 1, 2).float() / BRIGHTEST, labels
