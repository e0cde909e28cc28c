"""What each operation means for units: one file a family. An operation without a handler is named, not guessed."""

from __future__ import annotations

from rekindle.graph.operations import attention, elementwise, mixing, normalization, products, rearrange
from rekindle.graph.operations.registry import HANDLERS, Call, Handler

__all__ = [
    "HANDLERS",
    "Call",
    "Handler",
    "attention",
    "elementwise",
    "mixing",
    "normalization",
    "products",
    "rearrange",
]
