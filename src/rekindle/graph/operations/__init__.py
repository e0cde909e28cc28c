"""What each operation means for units and for scale: one file a family, both rules side by side."""

from __future__ import annotations

from rekindle.graph.operations import (
    attention,
    convolution,
    elementwise,
    embedding,
    joined,
    mixing,
    normalization,
    picked,
    products,
    rearrange,
    recurrent,
)
from rekindle.graph.operations.table import TABLE, Call, scale_after, units_after

__all__ = [
    "TABLE",
    "Call",
    "attention",
    "convolution",
    "elementwise",
    "embedding",
    "joined",
    "mixing",
    "normalization",
    "picked",
    "products",
    "rearrange",
    "recurrent",
    "scale_after",
    "units_after",
]
