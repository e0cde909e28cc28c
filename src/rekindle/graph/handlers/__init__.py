"""What each operation means for units: one file a family. An operation without a handler is named, not guessed."""

from __future__ import annotations

from rekindle.graph.handlers import attention, elementwise, mixing, normalisation, products, rearrange
from rekindle.graph.handlers.registry import HANDLERS, Call, Handler

__all__ = [
    "HANDLERS",
    "Call",
    "Handler",
    "attention",
    "elementwise",
    "mixing",
    "normalisation",
    "products",
    "rearrange",
]
