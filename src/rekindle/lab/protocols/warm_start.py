"""Warm start: train on a part of the data first, then on all of it (Ash & Adams 2020; FIRE 4.1, E.1; SWR 4.1).

A network that goes on from what it learned on the first part can end below one that never saw it. FIRE: 10% for 1000
epochs, then all for 100. Soft weight rescaling: 50% for 100, then all for 100.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from rekindle.lab.data.dataset import Dataset, examples_of
from rekindle.lab.data.subsets import noisy_labels, shuffled
from rekindle.methods.frozen_settings import settings
from rekindle.training.stage import Stage

Count = Annotated[int, Field(ge=1)]


@settings
class WarmStart:
    """Two stages.

    Args:
        fraction: Part of the training data in the first stage.
        images: Their number, instead of `fraction`.
        random_labels: Fraction of the first stage's labels that is drawn at random from all classes; what is learned
            there is then worthless on purpose.
        before: Epochs of the first stage.
        after: Epochs of the second stage.
        before_steps: Steps of the first stage, instead of epochs.
        after_steps: Steps of the second stage, instead of epochs.

    Example:
        >>> from rekindle.lab.data import load
        >>> [(stage.name, len(stage.train)) for stage in WarmStart(fraction=0.5).stages(load("digits"), seed=0)]
        [('part', 599), ('all', 1198)]
    """

    key: ClassVar[str] = "warm_start"

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.1
    images: Count | None = None
    random_labels: Annotated[float, Field(ge=0, le=1)] = 0.0
    before: Count = 1000
    after: Count = 100
    before_steps: Count | None = None
    after_steps: Count | None = None

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield the part, then all; the part is a random one that the seed decides."""
        train = shuffled(data.train, seed)
        count = self.images if self.images is not None else max(1, round(self.fraction * len(train)))
        part = noisy_labels(train.take(slice(count)), self.random_labels, data.classes, seed)
        yield Stage(
            "part",
            part,
            examples_of(data.test),
            epochs=self.before if self.before_steps is None else None,
            steps=self.before_steps,
            boundary=False,
        )
        yield Stage(
            "all",
            train,
            examples_of(data.test),
            epochs=self.after if self.after_steps is None else None,
            steps=self.after_steps,
        )
