"""Traces that were made before, kept with the model for as long as it lives.

A trace takes seconds where most treatments take milliseconds. It is found again as long as nothing has changed that it
depends on (`graph.trace_key`), and the constants that it looked at have the same values (`graph.constants`).

Nothing here keeps a model alive, and nothing goes with a model that is copied, pickled or saved: the traces stand in a
table beside it, whose entries die with their model. Initializers may hold modules, so they are not kept; whoever finds
a trace draws them up anew. A table entry is one tuple that is replaced as a whole, so that an interrupt or a second
thread finds the old one or the new one.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from rekindle.graph.adapters import adapters_in
from rekindle.graph.constants import Constant
from rekindle.graph.initializers import initializers_of
from rekindle.graph.trace_key import Key
from rekindle.graph.unit_graph import UnitGraph

MOST = 4  # traces of one model: examples of other shapes; the one that was not asked for longest goes


@dataclass(frozen=True, eq=False)
class _Trace:
    key: Key
    graph: UnitGraph  # with the initializers that were found by tracing, without those of modules
    constants: Sequence[Constant]

    def holds(self, model: nn.Module) -> bool:
        """Tell whether the constants that were looked at have the values that they had."""
        looked_at = [constant for constant in self.constants if constant.looked_at]
        buffers = dict(model.named_buffers(remove_duplicate=False)) if looked_at else {}
        return all(constant.holds(buffers) for constant in looked_at)


_TRACES: weakref.WeakKeyDictionary[nn.Module, tuple[_Trace, ...]] = weakref.WeakKeyDictionary()


def recall(model: nn.Module, key: Key | None) -> UnitGraph | None:
    """Return the trace of a model that was remembered under a key, without initializers of modules, or None."""
    known = _TRACES.get(model, ()) if key is not None else ()
    for trace in known:
        if trace.key == key and trace.holds(model):
            if trace is not known[0]:
                _TRACES[model] = (trace, *(each for each in known if each is not trace))
            return trace.graph
    return None


def remember(model: nn.Module, key: Key | None, graph: UnitGraph, constants: Sequence[Constant]) -> None:
    """Remember a trace under the key that the model had before it was traced, in the place of a former one.

    Args:
        model: The model without its wrappers.
        key: Nothing is remembered without one.
        graph: What was found, without initializers of modules.
        constants: What the model computes with beside parameters, and whether the trace has looked at it.
    """
    if key is not None:
        others = (each for each in _TRACES.get(model, ()) if each.key != key or not each.holds(model))
        _TRACES[model] = (_Trace(key, graph, constants), *others)[:MOST]


def of_model(graph: UnitGraph, model: nn.Module) -> UnitGraph:
    """Return a trace as a graph of its own, with the initializers of the model's modules."""
    return replace(
        graph,
        uncovered=dict(graph.uncovered),
        aliases=dict(graph.aliases),
        gains=dict(graph.gains),
        parameters=dict(graph.parameters),
        initializers={**graph.initializers, **initializers_of(model)},
        adapters=adapters_in(model),
    )
