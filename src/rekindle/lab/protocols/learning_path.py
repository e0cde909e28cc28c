"""A learning path: what every protocol is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from rekindle.lab.data.dataset import Dataset
from rekindle.training.stage import Stage


class LearningPath(Protocol):
    """A protocol: frozen settings that yield stages."""

    key: ClassVar[str]

    def stages(self, data: Dataset, seed: int) -> Iterator[Stage]:
        """Yield the stages in order; which examples are in which is decided by the seed."""
