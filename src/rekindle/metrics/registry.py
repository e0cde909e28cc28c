"""Metrics are found by their file: `metrics/dfi.py` holds the metric `dfi`. There is no list to edit.

A metric's module has `METRIC` (its card), a pure function named after the key, and `measure(inputs) -> Reading`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from rekindle.errors import SettingsError
from rekindle.metrics.reading import MetricCard

PACKAGE = "rekindle.metrics"
# Files of the package that hold no metric; nor do those whose name starts with an underscore.
NO_METRICS = frozenset({"reading", "features", "registry", "audit", "findings", "probe"})


@cache
def metric_keys() -> tuple[str, ...]:
    """Return the keys of all metrics, sorted."""
    names = (module.name for module in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__))
    return tuple(sorted(name for name in names if not name.startswith("_") and name not in NO_METRICS))


def metric(key: str) -> ModuleType:
    """Return the module of a metric: `METRIC`, the pure function, `measure`.

    Raises:
        SettingsError: There is no such metric.

    Example:
        >>> metric("dfi").METRIC.key
        'dfi'
    """
    if key not in metric_keys():
        raise SettingsError(
            expected=f"a metric: {', '.join(metric_keys())}",
            got=repr(key),
            fix="see docs/glossary.md for what each one means",
        )
    return importlib.import_module(f"{PACKAGE}.{key}")


def list_metrics() -> list[MetricCard]:
    """Return the cards of all metrics, by key.

    Example:
        >>> {"dfi", "frozen", "sfe"} <= {card.key for card in list_metrics()}
        True
    """
    return [metric(key).METRIC for key in metric_keys()]
