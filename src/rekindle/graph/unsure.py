"""Roles that a trace cannot vouch for: of weights at the border of what was left out, or is not understood.

Whether a weight is the first or the last of a model, a query or a key, is told by what it reads and by who reads it. At
such a border that is not seen. The role that is given there is the likely one; methods that go by roles ask here first.
"""

from __future__ import annotations

import numpy as np

from rekindle.graph.branching.left_out import is_left_out
from rekindle.graph.trace_log import TraceLog
from rekindle.graph.value import Value

PRODUCTS = ("matmul", "bmm", "mm", "baddbmm", "einsum", "scaled_dot_product_attention")


def maybe_first(trace_log: TraceLog) -> dict[str, str]:
    """Return the parameters that may read the model's input and nothing else, with the reason."""
    reads_units: set[str] = set()
    found: dict[str, str] = {}
    for call in trace_log.calls:
        read = [value for value in call.values if value.data]
        names = [name for value in call.values if not value.data for name in sorted(value.sources)]
        if any(value.unit_labels or value.leaks.numel() for value in read):
            reads_units.update(names)
        for why in sorted(why for value in read for why in value.opaque if is_left_out(why)):
            for name in names:
                found.setdefault(name, f"what it reads is not known, for it comes from {why}")
    return {name: why for name, why in found.items() if name not in reads_units}


def maybe_last(trace_log: TraceLog, root: np.ndarray) -> dict[str, str]:
    """Return the weights whose outputs nobody is seen to read, and that go where it is not seen, with the reason.

    Args:
        trace_log: What the rules wrote down.
        root: For each label the smallest one that it is tied to.
    """
    entered = np.full(trace_log.total, -1)
    for number, (labels, _) in enumerate(trace_log.opaque_labels):
        entered[root[labels.numpy()]] = number
    for labels, _ in trace_log.reads:
        entered[root[labels.numpy()]] = -1
    found: dict[str, str] = {}
    for use in (use for use in trace_log.weights if not use.embedding):
        places = entered[root[use.out_labels.numpy()]]
        if (places >= 0).any():
            why = trace_log.opaque_labels[int(places.max())][1]
            found.setdefault(use.tensor, f"what its outputs are for is not known: {why}")
    return found


def products_are_seen(trace_log: TraceLog) -> bool:
    """Tell whether no two activations were multiplied of which one is not known: they may be queries and keys."""
    return not any(_is_product_of_unknowns(call.op, call.values) for call in trace_log.calls)


def _is_product_of_unknowns(op: str, values: list[Value]) -> bool:
    two = values[:2]
    both = op in PRODUCTS and len(two) == 2 and all(value.data for value in two)
    return both and any(value.opaque and not value.unit_labels for value in two)
