"""Trace a model into its unit graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from rekindle.errors import GraphError
from rekindle.graph.assemble import assemble
from rekindle.graph.branching.unknown_uses import multiplies_unseen, note_gaps, note_left_out
from rekindle.graph.cache import of_model, recall, remember
from rekindle.graph.export import aliases_of, canonical_names
from rekindle.graph.garbage import no_garbage_left
from rekindle.graph.initializers import gains_of
from rekindle.graph.modules import parameters_of
from rekindle.graph.plain import not_plain_in, shapes_of
from rekindle.graph.programs import programs_of
from rekindle.graph.scan import scan
from rekindle.graph.surroundings import restored_on_failure
from rekindle.graph.trace_key import Key, trace_key
from rekindle.graph.trace_log import TraceLog
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.unwrap import bare
from rekindle.graph.walking import walk


def trace(model: nn.Module, example: Any, *, strict: bool = True, fresh: bool = False) -> UnitGraph:
    """Find weights and unit groups of a model by following what it computes for an example.

    A model is traced once. The trace is found again, by whoever asks for it, until something changes that it depends
    on: modules, hooks, attributes, configurations, classes and their functions, what these close over, shapes, types
    and ties of parameters, values of constants that pick units, the shapes and types of the example, and torch's modes.
    Weights may change as they like. What cannot be seen from the model are globals that its functions read (a flag or
    a function of a Python module), files and the environment: after such a change say `fresh=True`. A model that
    branches on data is traced each time.

    Args:
        model: Any module, in its wrappers (see `unwrap.bare`) or not; it is not changed.
        example: A tensor, a tuple of positional arguments, or a dict of keyword arguments for `model`. The loss
            that a model gives for a batch with `labels` is no part of the graph, and the graph's notes say so.
        strict: Raise where something is not understood, or branches on data so that `torch.export` cannot follow;
            otherwise leave those parts out and list them (see `left_out`). Where nothing can be followed at all, the
            weights are told by their layers' types and names, as without an example.
        fresh: Trace anew, whatever was found before; what is found takes its place.

    Raises:
        GraphError: The model does not run with this example, is sharded, or (with `strict`) has parts that cannot be
            followed or are not understood.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> [(group.name, group.size, group.kind) for group in trace(net, torch.zeros(1, 4)).groups]
        [('0', 3, 'hidden'), ('2', 2, 'output')]
    """
    model = bare(model)
    key = trace_key(model, example)
    graph = None if fresh else recall(model, key)
    if graph is None:
        with restored_on_failure(model), no_garbage_left():
            graph = _traced(model, example, strict, key)
    if strict:
        _refuse_gaps(graph.not_understood)
    return of_model(graph, model).leaving_out(not_plain_in(model))


def _traced(model: nn.Module, example: Any, strict: bool, key: Key | None) -> UnitGraph:
    """Return the graph without the initializers of modules, which `cache.of_model` adds, and remember it.

    A model that is followed in pieces branches on data, and may branch otherwise next time: that is not remembered.
    """
    programs = programs_of(model, example, strict=strict)
    trace_log = TraceLog()
    names = canonical_names(model)
    notes = programs.notes
    for piece in programs.pieces:
        notes += walk(piece, trace_log, names)
    note_gaps(trace_log)
    if programs.found is not None:
        note_left_out(trace_log, model, programs.found, names)
    if programs.found is not None and not trace_log.weights:
        return replace(scan(model), not_understood=tuple(trace_log.not_understood), notes=notes)
    found = assemble(trace_log, shapes_of(parameters_of(model)), aliases_of(names), {}, gains_of(model))
    unseen = programs.found is not None and multiplies_unseen(programs.found)
    graph = replace(found, notes=notes, roles_known=found.roles_known and not unseen)
    if programs.found is None:
        remember(model, key, graph, trace_log.constants)
    return graph


def _refuse_gaps(parts: Sequence[str]) -> None:
    if parts:
        raise GraphError(
            expected="operations whose meaning for units is known",
            got="; ".join(parts[:8]) + (f"; and {len(parts) - 8} more" if len(parts) > 8 else ""),
            fix="trace with strict=False to leave these parts out (the graph says which), or trace a part of the model",
        )
