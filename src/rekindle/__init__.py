"""rekindle keeps PyTorch networks able to learn: diagnose, treat, prove.

    import rekindle as rk
    graph = rk.trace(model, example)
    record = rk.fire_(model, optimizer, example=example)

Names are loaded when they are first asked for, so that `import rekindle` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

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
    "method": "rekindle.methods.registry",
    "list_methods": "rekindle.methods.registry",
    "ChangeRecord": "rekindle.edits.record",
    "Plan": "rekindle.edits.plan",
    "RekindleError": "rekindle.errors",
    "NoEffectWarning": "rekindle.errors",
    "KeeperWarning": "rekindle.errors",
}
_ROOMS = ("errors", "testing", "lab", "kernels", "metrics", "statistics")

refuse_old_modules()


def __getattr__(name: str) -> Any:
    if name in NAMES:
        raise refuse_old_name("rk", name, NAMES[name])
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"rekindle.{name}")
    found = None if name.startswith("_") else _of_a_method(name)
    if found is not None:
        return found
    raise AttributeError(f"module 'rekindle' has no attribute {name!r}")


def _of_a_method(name: str) -> Any:
    """Return what a method adds to the public names: its settings class, its function or its optimizer; or None."""
    registry = importlib.import_module("rekindle.methods.registry")
    kinds = importlib.import_module("rekindle.methods.kinds")
    for key in (name.removesuffix("_"), kinds.key_of(name)):
        if key in registry.places():
            cls = registry.settings_class(key)
            if name == cls.__name__:
                return cls
            if name == kinds.function_name(cls):
                return importlib.import_module("rekindle.methods.functions").function_of(key)
    return None


def __dir__() -> list[str]:
    registry = importlib.import_module("rekindle.methods.registry")
    kinds = importlib.import_module("rekindle.methods.kinds")
    classes = [registry.settings_class(key) for key in registry.places()]
    functions = [name for cls in classes if (name := kinds.function_name(cls))]
    return sorted([*_HOME, *_ROOMS, *functions, *(cls.__name__ for cls in classes), "__version__"])
