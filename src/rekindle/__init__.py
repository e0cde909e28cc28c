"""rekindle keeps PyTorch networks able to learn: diagnose, treat, prove.

    import rekindle as rk
    graph = rk.trace(model, example)
    record = rk.fire_(model, optimizer, example=example)

Names are loaded when they are first asked for, so that `import rekindle` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rekindle._renamed import NAMES, refuse_old_modules, refuse_old_name

__version__ = "0.1.0"

_HOME = {
    "trace": "rekindle.graph",
    "UnitGraph": "rekindle.graph",
    "plan": "rekindle.methods.apply",
    "apply_": "rekindle.methods.apply",
    "recalibrate_": "rekindle.edits.recalibrate",
    "restore_": "rekindle.edits.restore",
    "Keeper": "rekindle.keeper",
    "audit": "rekindle.diagnosis",
    "Audit": "rekindle.diagnosis",
    "compare": "rekindle.comparison",
    "Comparison": "rekindle.comparison",
    "list_metrics": "rekindle.metrics.registry",
    "muon": "rekindle.methods.optimizers.muon",
    "method": "rekindle.methods.registry",
    "list_methods": "rekindle.methods.registry",
    "ChangeRecord": "rekindle.edits.record",
    "Plan": "rekindle.edits.plan",
    "RekindleError": "rekindle.errors",
    "NoEffectWarning": "rekindle.errors",
}
_ROOMS = ("errors", "testing", "lab", "kernels", "metrics", "statistics")

if TYPE_CHECKING:
    from rekindle.comparison import Comparison as Comparison
    from rekindle.comparison import compare as compare
    from rekindle.diagnosis import Audit as Audit
    from rekindle.diagnosis import audit as audit
    from rekindle.edits.plan import Plan as Plan
    from rekindle.edits.recalibrate import recalibrate_ as recalibrate_
    from rekindle.edits.record import ChangeRecord as ChangeRecord
    from rekindle.edits.restore import restore_ as restore_
    from rekindle.errors import NoEffectWarning as NoEffectWarning
    from rekindle.errors import RekindleError as RekindleError
    from rekindle.graph import UnitGraph as UnitGraph
    from rekindle.graph import trace as trace
    from rekindle.keeper import Keeper as Keeper
    from rekindle.methods.apply import apply_ as apply_
    from rekindle.methods.apply import plan as plan
    from rekindle.methods.one_shot.dash import dash_ as dash_
    from rekindle.methods.one_shot.dirac_reset import dirac_reset_ as dirac_reset_
    from rekindle.methods.one_shot.doubly_sparse import doubly_sparse_ as doubly_sparse_
    from rekindle.methods.one_shot.dsd import dsd_ as dsd_
    from rekindle.methods.one_shot.fire import fire_ as fire_
    from rekindle.methods.one_shot.full_reset import full_reset_ as full_reset_
    from rekindle.methods.one_shot.head_reset import head_reset_ as head_reset_
    from rekindle.methods.one_shot.layerwise import layerwise_ as layerwise_
    from rekindle.methods.one_shot.mono_sparse import mono_sparse_ as mono_sparse_
    from rekindle.methods.one_shot.mutually_frozen import mutually_frozen_ as mutually_frozen_
    from rekindle.methods.one_shot.plasticity_injection import plasticity_injection_ as plasticity_injection_
    from rekindle.methods.one_shot.rescale import rescale_ as rescale_
    from rekindle.methods.one_shot.shrink_perturb import shrink_perturb_ as shrink_perturb_
    from rekindle.methods.one_shot.wels import wels_ as wels_
    from rekindle.methods.one_shot.welsr import welsr_ as welsr_
    from rekindle.methods.optimizers.muon import muon as muon
    from rekindle.methods.registry import list_methods as list_methods
    from rekindle.methods.registry import method as method
    from rekindle.metrics.registry import list_metrics as list_metrics


refuse_old_modules()


def __getattr__(name: str) -> Any:
    if name in NAMES:
        raise refuse_old_name("rk", name, NAMES[name])
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"rekindle.{name}")
    if name.endswith("_") and not name.startswith("_"):
        registry = importlib.import_module("rekindle.methods.registry")
        place = registry.places().get(name.removesuffix("_"))
        if place is not None:
            return getattr(importlib.import_module(place), name)
    raise AttributeError(f"module 'rekindle' has no attribute {name!r}")


def __dir__() -> list[str]:
    registry = importlib.import_module("rekindle.methods.registry")
    one_shot = [f"{key}_" for key, place in registry.places().items() if place.startswith("rekindle.methods.one_shot.")]
    return sorted([*_HOME, *_ROOMS, *one_shot, "__version__"])
