"""Class-incremental learning: new classes arrive in phases, under one head for all of them (FIRE 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field

from rekindle.errors import SettingsError
from rekindle.lab.data.dataset import Dataset, examples_of
from rekindle.lab.data.subsets import of_classes
from rekindle.methods.frozen_settings import settings
from rekindle.seeds import generator
from rekindle.training.stage import Stage


@settings
class ClassIncremental:
    """As many stages as phases.

    FIRE assumes access to past data: a phase trains on all classes so far. Accuracy is measured on the test examples of
    the classes so far; the column `accuracy_all` has that on all.

    Args:
        phases: Number of equal parts of the classes.
        access: "full": classes of all phases so far; "limited": the new ones alone.
        epochs: Of each phase.

    Example:
        >>> from rekindle.lab.data import load
        >>> path = ClassIncremental(phases=5)
        >>> [len(stage.test.labels.unique()) for stage in path.stages(load("digits"), seed=0)]
        [2, 4, 6, 8, 10]
    """

    key: ClassVar[str] = "class_incremental"

    phases: Annotated[int, Field(ge=1)] = 20
    access: Literal["full", "limited"] = "full"
    epochs: Annotated[int, Field(ge=1)] = 100

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield a stage for each phase; the seed decides the order of the classes."""
        if data.classes % self.phases:
            raise SettingsError(
                expected=f"a number of phases that divides the {data.classes} classes of {data.name}",
                got=f"phases={self.phases}",
                fix="take one of " + ", ".join(str(n) for n in range(1, data.classes + 1) if data.classes % n == 0),
            )
        order = torch.randperm(data.classes, generator=generator(seed, "classes", "order")).tolist()
        each = data.classes // self.phases
        for phase in range(self.phases):
            so_far = order[: (phase + 1) * each]
            shown = so_far if self.access == "full" else so_far[-each:]
            yield Stage(
                f"phase {phase + 1}",
                of_classes(data.train, shown),
                of_classes(data.test, so_far),
                epochs=self.epochs,
                boundary=phase > 0,
                also={"all": examples_of(data.test)},
            )
