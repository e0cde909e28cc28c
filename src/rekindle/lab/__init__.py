"""For experiments: models, data, protocols, runs and their report.

Nothing that treats a model needs it; the command line, the papers and the zoo of `rekindle.testing` do.
"""

import importlib
from types import ModuleType

PARTS = ("data", "models", "protocols", "report", "runs")


def __getattr__(name: str) -> ModuleType:
    if name in PARTS:
        return importlib.import_module(f"rekindle.lab.{name}")
    raise AttributeError(f"module 'rekindle.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(PARTS)
