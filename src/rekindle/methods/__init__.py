"""Methods: cards, settings, spec strings and the registry; one folder for each kind, one file for each method.

Names are loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rekindle._lazy import lazy

_HOMES = {
    "Card": "card",
    "change": "spec",
    "links": "spec",
    "list_methods": "registry",
    "method": "registry",
    "methods": "registry",
    "name_of": "spec",
    "settings": "frozen_settings",
    "split": "spec",
    "to_spec": "spec",
}
__all__ = [*_HOMES]

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

__getattr__, __dir__ = lazy(__name__, _HOMES)
