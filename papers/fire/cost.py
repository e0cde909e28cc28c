"""What one reset costs: S&P, FIRE and DASH take turns on the same network (F Table 1)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import rekindle as rk
from rekindle.lab.models import build

METHODS = {"S&P": "shrink_perturb:shrink=0.8", "FIRE": "fire:preset=paper", "DASH": "dash:alpha=0.1,floor=0.05"}
Batch = tuple[Tensor, Tensor]


def cost(seeds: int) -> list[dict[str, Any]]:
    """Return ratios of time on VGG-16 with 100,000 images of 64x64 and 200 classes, a repeat for each seed."""
    return ratios("vgg16", size=64, classes=200, images=100_000, repeats=seeds)


def cost_small(seeds: int) -> list[dict[str, Any]]:
    """Return the same on a quarter of the width, 2,560 images of 32x32."""
    return ratios("vgg16:width=16,hidden=1024", size=32, classes=200, images=2_560, repeats=seeds)


def ratios(model: str, *, size: int, classes: int, images: int, repeats: int) -> list[dict[str, Any]]:
    """Return an observation for each repeat and ratio: times over S&P and over FIRE.

    Args:
        model: Spec of the network.
        size: Height and width of the images.
        classes: Outputs.
        images: Random images that DASH passes over, in batches of 256.
        repeats: How often; the first round of all is not counted.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build(model, SimpleNamespace(shape=(3, size, size), classes=classes))
    batches = _Noise(images, size, classes)
    graph = rk.trace(network, torch.zeros(2, 3, size, size))
    start = {name: value.clone() for name, value in network.state_dict().items()}
    observations = []
    for repeat in range(-1, repeats):
        seconds = {}
        for name, spec in METHODS.items():
            begin = time.perf_counter()
            record = rk.apply_(spec, network, graph=graph, reference=start, data=batches, loss=_loss)
            seconds[name] = time.perf_counter() - begin
            record.undo()
        if repeat >= 0:
            observations += [
                {
                    "condition": f"time over {one}",
                    "method": other,
                    "seed": repeat,
                    "ratio": seconds[other] / seconds[one],
                }
                for one, other in (("S&P", "FIRE"), ("S&P", "DASH"), ("FIRE", "DASH"))
            ]
    return observations


class _Noise:
    """The same random batch, again and again."""

    def __init__(self, images: int, size: int, classes: int, batch: int = 256) -> None:
        random = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(batch, 3, size, size, generator=random)
        self.labels = torch.randint(classes, (batch,), generator=random)
        self.count = max(1, images // batch)

    def __iter__(self) -> Iterator[Batch]:
        yield from ((self.inputs, self.labels) for _ in range(self.count))


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])
