"""Warm start: train on a little data first, then on all of it, with or without a treatment in between.

A network that goes on from what it learned on the first images can end below one that never saw them (Ash & Adams 2020;
FIRE, 4.1). First version: two stages and a fresh optimizer each, as in FIRE; the first stage's labels can be partly
random, which makes what is learned there worthless on purpose.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.core.errors import RekindleError
from rekindle.core.seeds import generator, global_seed
from rekindle.data.digits import Split
from rekindle.protocols.loop import Budget, accuracy, train
from rekindle.treat import apply_


@dataclass(frozen=True)
class WarmStart:
    """The two stages.

    Args:
        first_images: How many of the training images the first stage sees; the second sees all, with their own labels.
        random_labels: Fraction of the first stage's labels that is drawn at random from all classes.
        before: Budget of the first stage.
        after: Budget of the second stage.
    """

    first_images: int = 200
    random_labels: float = 0.0
    before: Budget = field(default_factory=lambda: Budget(steps=500))
    after: Budget = field(default_factory=lambda: Budget(steps=200))

    def __post_init__(self) -> None:
        if self.first_images < 1 or not 0 <= self.random_labels <= 1:
            raise RekindleError(
                expected="first_images >= 1 and random_labels between 0 and 1",
                got=f"first_images={self.first_images}, random_labels={self.random_labels}",
                fix="correct the number that is out of its range",
            )


def warm_start(
    spec: WarmStart, build: Callable[[], nn.Module], data: Split, treatments: Sequence[str | None], seed: int = 0
) -> list[dict[str, Any]]:
    """Train the first stage once, then the second once for each treatment, all from the same point.

    Args:
        spec: What the stages are.
        build: Makes an untrained model; called under `seed`.
        data: Training and test images.
        treatments: Spec strings such as "fire:iterations=5"; None goes on untreated.
        seed: Decides the initial weights, the random labels, the order of the batches and the treatment's draws.

    Returns:
        One row for each treatment: `treatment`, `seed`, test accuracy after the first stage (`accuracy_first`), right
        after the treatment (`accuracy_treated`) and at the end (`accuracy`), and the last training loss.
    """
    with global_seed(seed, "model", "initial weights"):
        model = build()
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    images, labels = _first_stage(spec, data, seed)
    train(model, images, labels, spec.before, seed=seed)
    return [_second_stage(spec, copy.deepcopy(model), initial, data, treatment, seed) for treatment in treatments]


def _first_stage(spec: WarmStart, data: Split, seed: int) -> tuple[Tensor, Tensor]:
    images, labels = data.train_images[: spec.first_images], data.train_labels[: spec.first_images].clone()
    classes = int(data.train_labels.max()) + 1
    drawn = round(spec.random_labels * len(labels))  # the images are shuffled already: the first ones will do
    labels[:drawn] = torch.randint(classes, (drawn,), generator=generator(seed, "labels", "random"))
    return images, labels


def _second_stage(
    spec: WarmStart, model: nn.Module, initial: dict[str, Tensor], data: Split, treatment: str | None, seed: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"protocol": "warm_start", "treatment": treatment, "seed": seed}
    row["accuracy_first"] = accuracy(model, data.test_images, data.test_labels)
    if treatment is not None:
        apply_(treatment, model, example=data.train_images[:2], reference=initial, seed=seed)
    row["accuracy_treated"] = accuracy(model, data.test_images, data.test_labels)
    losses = train(model, data.train_images, data.train_labels, spec.after, seed=seed + 1)
    row["accuracy"] = accuracy(model, data.test_images, data.test_labels)
    row["last_loss"] = losses[-1] if losses else None
    return row
