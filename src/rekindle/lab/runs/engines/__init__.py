"""Who trains the runs of a sweep: processes of this machine, a Ray cluster, stacks of seeds.

Names are loaded when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "LocalEngine": "rekindle.lab.runs.engines.local",
    "RayEngine": "rekindle.lab.runs.engines.ray_cluster",
    "StackingEngine": "rekindle.lab.runs.engines.stacking",
}
__all__ = list(_HOME)

if TYPE_CHECKING:
    from rekindle.lab.runs.engines.local import LocalEngine as LocalEngine
    from rekindle.lab.runs.engines.ray_cluster import RayEngine as RayEngine
    from rekindle.lab.runs.engines.stacking import StackingEngine as StackingEngine


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rekindle.lab.runs.engines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
