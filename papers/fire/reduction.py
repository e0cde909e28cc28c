"""What the reduced studies of FIRE share: a narrow network on a part of CIFAR-10, and how pages describe it."""

from __future__ import annotations

from papers.experiment import Fields
from rekindle.lab.runs import presets

FIGURE = "A figure: our copy has no numbers."
ALL_SETS = ("cifar10", "cifar100", "tiny_imagenet")
NARROW: Fields = {
    **presets.FIRE,
    "data": "cifar10:size=16",
    "model": "resnet18:width=8",
    "sample_fraction": 0.1,
    "batch_size": 64,
    "evaluate_each": 1000,
}
DESCRIPTION = "CIFAR-10 alone, {images} images of 16x16, ResNet-18 of an eighth of the width, batches of {batch}, "
FEW_IMAGES = DESCRIPTION.format(images="5,000", batch=64)
