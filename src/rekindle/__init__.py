"""rekindle keeps PyTorch networks able to learn: diagnose, treat, prove.

    import rekindle as rk
    graph = rk.trace(model, example)
    record = rk.fire_(model, optimizer, example=example)

Names are loaded when they are first asked for, so that `import rekindle` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "trace": "rekindle.graph",
    "UnitGraph": "rekindle.graph",
    "plan": "rekindle.treat",
    "apply_": "rekindle.treat",
    "recalibrate_": "rekindle.recalibrate",
    "restore_": "rekindle.core.restore",
    "Keeper": "rekindle.keeper",
    "audit": "rekindle.auditing",
    "Audit": "rekindle.auditing",
    "compare": "rekindle.bench.compare",
    "Comparison": "rekindle.bench.comparison",
    "list_metrics": "rekindle.metrics.registry",
    "muon": "rekindle.steps.muon",
    "method": "rekindle.core.registry",
    "list_methods": "rekindle.core.registry",
    "ChangeRecord": "rekindle.core.record",
    "Plan": "rekindle.core.plan",
    "RekindleError": "rekindle.core.errors",
    "PlanWarning": "rekindle.core.errors",
}
_ROOMS = ("testing", "models", "data", "kernels", "metrics")

if TYPE_CHECKING:
    from rekindle.auditing import Audit as Audit
    from rekindle.auditing import audit as audit
    from rekindle.bench.compare import compare as compare
    from rekindle.bench.comparison import Comparison as Comparison
    from rekindle.core.errors import PlanWarning as PlanWarning
    from rekindle.core.errors import RekindleError as RekindleError
    from rekindle.core.plan import Plan as Plan
    from rekindle.core.record import ChangeRecord as ChangeRecord
    from rekindle.core.registry import list_methods as list_methods
    from rekindle.core.registry import method as method
    from rekindle.core.restore import restore_ as restore_
    from rekindle.graph import UnitGraph as UnitGraph
    from rekindle.graph import trace as trace
    from rekindle.interventions.dash import dash_ as dash_
    from rekindle.interventions.dirac_reset import dirac_reset_ as dirac_reset_
    from rekindle.interventions.doubly_sparse import doubly_sparse_ as doubly_sparse_
    from rekindle.interventions.dsd import dsd_ as dsd_
    from rekindle.interventions.fire import fire_ as fire_
    from rekindle.interventions.full_reset import full_reset_ as full_reset_
    from rekindle.interventions.head_reset import head_reset_ as head_reset_
    from rekindle.interventions.layerwise import layerwise_ as layerwise_
    from rekindle.interventions.mono_sparse import mono_sparse_ as mono_sparse_
    from rekindle.interventions.mutually_frozen import mutually_frozen_ as mutually_frozen_
    from rekindle.interventions.plasticity_injection import plasticity_injection_ as plasticity_injection_
    from rekindle.interventions.rescale import rescale_ as rescale_
    from rekindle.interventions.shrink_perturb import shrink_perturb_ as shrink_perturb_
    from rekindle.interventions.wels import wels_ as wels_
    from rekindle.interventions.welsr import welsr_ as welsr_
    from rekindle.keeper import Keeper as Keeper
    from rekindle.metrics.registry import list_metrics as list_metrics
    from rekindle.recalibrate import recalibrate_ as recalibrate_
    from rekindle.steps.muon import muon as muon
    from rekindle.treat import apply_ as apply_
    from rekindle.treat import plan as plan


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"rekindle.{name}")
    if name.endswith("_") and not name.startswith("_"):
        registry = importlib.import_module("rekindle.core.registry")
        place = registry.places().get(name.removesuffix("_"))
        if place is not None:
            return getattr(importlib.import_module(place), name)
    raise AttributeError(f"module 'rekindle' has no attribute {name!r}")


def __dir__() -> list[str]:
    registry = importlib.import_module("rekindle.core.registry")
    one_shot = [f"{key}_" for key, place in registry.places().items() if place.startswith("rekindle.interventions.")]
    return sorted([*_HOME, *_ROOMS, *one_shot, "__version__"])
