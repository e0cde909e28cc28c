"""Protocols by spec string."""

from __future__ import annotations

from typing import Any

from rekindle.core.spec import choose, fill
from rekindle.protocols.class_incremental import ClassIncremental
from rekindle.protocols.continual import Continual
from rekindle.protocols.generalization import Generalization
from rekindle.protocols.permuted import Permuted
from rekindle.protocols.rounds import Rounds
from rekindle.protocols.stage import LearningPath
from rekindle.protocols.task_change import TaskChange
from rekindle.protocols.warm_start import WarmStart

PROTOCOLS: dict[str, Any] = {
    made.key: made for made in (WarmStart, Continual, ClassIncremental, Generalization, TaskChange, Rounds, Permuted)
}


def protocol(spec: str) -> LearningPath:
    """Return the protocol of a spec string.

    Example:
        >>> protocol("warm_start:fraction=0.5,before=100").fraction
        0.5
    """
    made: LearningPath = fill(PROTOCOLS[choose("protocols", spec, PROTOCOLS)], spec)
    return made
