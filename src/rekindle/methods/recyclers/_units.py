"""What recyclers share: settings, words for their cards, and how units are left alone by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import torch

from rekindle.graph.names import matches
from rekindle.methods.state import MethodContext

Seen = TypeVar("Seen")

RECYCLED = "fresh incoming weights, neutral normalization, silent outgoing weights and cleared moments"
ZEROS_WIN = (
    "Units of two adjacent layers recycled at once: the weight between two of them is zero, since our zeros win over "
    "the fresh draw. A unit that would have no incoming weight left is held back, and keeps its weights and its "
    "history."
)
FRESH_BIASES = "The bias of a recycled unit is drawn by its layer's own initializer too"
IN_PLACE = (
    "Outgoing weights are silenced and moments cleared where they are. Published code does both on a copy, so that "
    "nothing happens."
)
FLATTENED = (
    "Between a convolution and a linear layer a channel has a column for each of its positions, and all of them are "
    "silenced; published code scrambles the channels there."
)


def not_skipped(groups: Mapping[str, Seen], skip: Collection[str]) -> dict[str, Seen]:
    """Return what is known of groups, without those that fit a pattern.

    Example:
        >>> not_skipped({"stem": 1, "head": 2}, ["he*"])
        {'stem': 1}
    """
    return {name: seen for name, seen in groups.items() if not matches(name, skip)}


def device_of(context: MethodContext) -> torch.device:
    """Return the device of the model's first tensor; the CPU without one."""
    first = next(iter(context.tensors.values()), None)
    return torch.device("cpu") if first is None else first.device
