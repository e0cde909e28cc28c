"""Methods: cards, settings, spec strings and the registry; one folder for each kind, one file for each method.

Names are loaded when they are first asked for: `rekindle.methods.fire` files import from below this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Card": "rekindle.methods.card",
    "change": "rekindle.methods.spec",
    "links": "rekindle.methods.spec",
    "list_methods": "rekindle.methods.registry",
    "method": "rekindle.methods.registry",
    "methods": "rekindle.methods.registry",
    "name_of": "rekindle.methods.spec",
    "settings": "rekindle.methods.frozen_settings",
    "split": "rekindle.methods.spec",
    "to_spec": "rekindle.methods.spec",
}
__all__ = list(_HOME)

if TYPE_CHECKING:
    from rekindle.methods.card import Card as Card
    from rekindle.methods.frozen_settings import settings as settings
    from rekindle.methods.registry import list_methods as list_methods
    from rekindle.methods.registry import method as method
    from rekindle.methods.registry import methods as methods
    from rekindle.methods.spec import change as change
    from rekindle.methods.spec import links as links
    from rekindle.methods.spec import name_of as name_of
    from rekindle.methods.spec import split as split
    from rekindle.methods.spec import to_spec as to_spec


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rekindle.methods' has no attribute {name!r}")
