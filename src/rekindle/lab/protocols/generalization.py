"""Generalization: one stage on all the data, with or without step decay (soft weight rescaling 4.3, E)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from rekindle.lab.data.dataset import Dataset, examples_of
from rekindle.methods.frozen_settings import settings
from rekindle.training.schedules import Steps
from rekindle.training.stage import Stage


@settings
class Generalization:
    """One stage without a boundary: one-shot methods never act, per-step methods always.

    Args:
        epochs: Passes over the data.
        decay: Whether the learning rate is divided by 10 at half and at three quarters (epochs 100 and 150 of 200).
        rebase: Whether per-step methods take the weights as their new start when that happens (SWR + re-init).
    """

    key: ClassVar[str] = "generalization"

    epochs: Annotated[int, Field(ge=1)] = 200
    decay: bool = False
    rebase: bool = False

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield the stage."""
        drops = Steps(at=(self.epochs // 2, self.epochs * 3 // 4), by=0.1)
        yield Stage(
            "all",
            examples_of(data.train),
            examples_of(data.test),
            epochs=self.epochs,
            boundary=False,
            schedule=drops if self.decay else None,
            rebase=self.rebase,
        )
