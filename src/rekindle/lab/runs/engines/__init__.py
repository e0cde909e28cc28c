"""Who trains the runs of a sweep: processes of this machine, a Ray cluster, stacks of seeds.

Names are loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekindle._lazy import lazy

_HOMES = {
    "LocalEngine": "local",
    "RayEngine": "ray_cluster",
    "StackingEngine": "stacking",
}
__all__ = [*_HOMES]

if TYPE_CHECKING:
    from rekindle.lab.runs.engines.local import LocalEngine as LocalEngine
    from rekindle.lab.runs.engines.ray_cluster import RayEngine as RayEngine
    from rekindle.lab.runs.engines.stacking import StackingEngine as StackingEngine

__getattr__, __dir__ = lazy(__name__, _HOMES)
