"""Runs: a spec, a sweep of them, the engines that train them, and the store of their results.

    from rekindle.lab.runs import LocalEngine, Store, Sweep, run_sweep
    runs = Sweep(fixed={"data": "digits"}, grid={"methods": ["none", "fire"]}, seeds=(0, 1)).expand()
    run_sweep(Store("runs/first"), runs, LocalEngine())

Names are loaded when they are first asked for: who reads rows need not load what trains.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "TRAIN_RUN": "rekindle.lab.runs.execute",
    "Engine": "rekindle.lab.runs.execute",
    "EngineError": "rekindle.lab.runs.execute",
    "Event": "rekindle.lab.runs.execute",
    "Listen": "rekindle.lab.runs.execute",
    "LocalEngine": "rekindle.lab.runs.engines.local",
    "RayEngine": "rekindle.lab.runs.engines.ray_cluster",
    "Run": "rekindle.lab.runs.spec",
    "StackingEngine": "rekindle.lab.runs.engines.stacking",
    "Store": "rekindle.lab.runs.store",
    "StoreError": "rekindle.lab.runs.store",
    "Summary": "rekindle.lab.runs.execute",
    "Sweep": "rekindle.lab.runs.sweep",
    "SweepError": "rekindle.lab.runs.sweep",
    "parse_sweep": "rekindle.lab.runs.sweep",
    "read_lines": "rekindle.lab.runs.rows",
    "read_sweep": "rekindle.lab.runs.sweep",
    "run_sweep": "rekindle.lab.runs.execute",
    "to_lines": "rekindle.lab.runs.rows",
    "versions": "rekindle.lab.runs.store",
}
__all__ = [*_HOME, "presets"]

if TYPE_CHECKING:
    from rekindle.lab.runs import presets as presets
    from rekindle.lab.runs.engines.local import LocalEngine as LocalEngine
    from rekindle.lab.runs.engines.ray_cluster import RayEngine as RayEngine
    from rekindle.lab.runs.engines.stacking import StackingEngine as StackingEngine
    from rekindle.lab.runs.execute import TRAIN_RUN as TRAIN_RUN
    from rekindle.lab.runs.execute import Engine as Engine
    from rekindle.lab.runs.execute import EngineError as EngineError
    from rekindle.lab.runs.execute import Event as Event
    from rekindle.lab.runs.execute import Listen as Listen
    from rekindle.lab.runs.execute import Summary as Summary
    from rekindle.lab.runs.execute import run_sweep as run_sweep
    from rekindle.lab.runs.rows import read_lines as read_lines
    from rekindle.lab.runs.rows import to_lines as to_lines
    from rekindle.lab.runs.spec import Run as Run
    from rekindle.lab.runs.store import Store as Store
    from rekindle.lab.runs.store import StoreError as StoreError
    from rekindle.lab.runs.store import versions as versions
    from rekindle.lab.runs.sweep import Sweep as Sweep
    from rekindle.lab.runs.sweep import SweepError as SweepError
    from rekindle.lab.runs.sweep import parse_sweep as parse_sweep
    from rekindle.lab.runs.sweep import read_sweep as read_sweep


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "presets":
        return importlib.import_module("rekindle.lab.runs.presets")
    raise AttributeError(f"module 'rekindle.lab.runs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
