"""Runs: a spec, a sweep of them, the engines that train them, and the store of their results.

    from rekindle.lab.runs import LocalEngine, Store, Sweep, run_sweep
    runs = Sweep(fixed={"data": "digits"}, grid={"methods": ["none", "fire"]}, seeds=(0, 1)).expand()
    run_sweep(Store("runs/first"), runs, LocalEngine())

Names are loaded when they are first asked for: who reads rows need not load what trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekindle._lazy import lazy

_HOMES = {
    "Engine": "execute",
    "EngineError": "execute",
    "Event": "execute",
    "Listen": "execute",
    "LocalEngine": "engines.local",
    "RayEngine": "engines.ray_cluster",
    "Run": "spec",
    "StackingEngine": "engines.stacking",
    "Store": "store",
    "StoreError": "store",
    "Summary": "execute",
    "Sweep": "sweep",
    "SweepError": "sweep",
    "TRAIN_RUN": "execute",
    "parse_sweep": "sweep",
    "read_lines": "rows",
    "read_sweep": "sweep",
    "run_sweep": "execute",
    "save_comparison": "saved_comparison",
    "to_lines": "rows",
    "versions": "store",
}
__all__ = [*_HOMES, "presets"]

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
    from rekindle.lab.runs.saved_comparison import save_comparison as save_comparison
    from rekindle.lab.runs.spec import Run as Run
    from rekindle.lab.runs.store import Store as Store
    from rekindle.lab.runs.store import StoreError as StoreError
    from rekindle.lab.runs.store import versions as versions
    from rekindle.lab.runs.sweep import Sweep as Sweep
    from rekindle.lab.runs.sweep import SweepError as SweepError
    from rekindle.lab.runs.sweep import parse_sweep as parse_sweep
    from rekindle.lab.runs.sweep import read_sweep as read_sweep

__getattr__, __dir__ = lazy(__name__, _HOMES, ("presets",))
