"""Protocols by spec string."""

from __future__ import annotations

from typing import Any

from rekindle.lab.protocols.class_incremental import ClassIncremental
from rekindle.lab.protocols.continual import Continual
from rekindle.lab.protocols.generalization import Generalization
from rekindle.lab.protocols.learning_path import LearningPath
from rekindle.lab.protocols.lm_continual import LmContinual
from rekindle.lab.protocols.permuted import Permuted
from rekindle.lab.protocols.rounds import Rounds
from rekindle.lab.protocols.task_change import TaskChange
from rekindle.lab.protocols.warm_start import WarmStart
from rekindle.methods.spec import choose, fill

_IMAGES = (WarmStart, Continual, ClassIncremental, Generalization, TaskChange, Rounds, Permuted)
PROTOCOLS: dict[str, Any] = {made.key: made for made in (*_IMAGES, LmContinual)}


def protocol(spec: str) -> LearningPath:
    """Return the protocol of a spec string.

    Example:
        >>> protocol("warm_start:fraction=0.5,before=100").fraction
        0.5
    """
    made: LearningPath = fill(PROTOCOLS[choose("protocols", spec, PROTOCOLS)], spec)
    return made
