"""Continual learning: the data arrive in chunks (FIRE 4.1; soft weight rescaling 4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rekindle.lab.data.dataset import Dataset, examples_of
from rekindle.lab.data.subsets import shuffled
from rekindle.methods.frozen_settings import settings
from rekindle.training.stage import Stage


@settings
class Continual:
    """As many stages as chunks.

    Args:
        chunks: Number of equal random parts of the training data.
        access: "full": stage k trains on chunks 1 to k; "limited": on chunk k alone.
        epochs: Of each stage.

    Example:
        >>> from rekindle.lab.data import load
        >>> path = Continual(chunks=3, access="full")
        >>> [len(stage.train) for stage in path.stages(load("digits"), seed=0)]
        [399, 798, 1198]
    """

    key: ClassVar[str] = "continual"

    chunks: Annotated[int, Field(ge=1)] = 10
    access: Literal["full", "limited"] = "full"
    epochs: Annotated[int, Field(ge=1)] = 100

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield a stage for each chunk; there is a boundary before each but the first."""
        train = shuffled(data.train, seed)
        ends = [len(train) * k // self.chunks for k in range(self.chunks + 1)]
        for k in range(self.chunks):
            start = 0 if self.access == "full" else ends[k]
            part = train.take(slice(start, ends[k + 1]))  # a view
            yield Stage(f"chunk {k + 1}", part, examples_of(data.test), epochs=self.epochs, boundary=k > 0)
