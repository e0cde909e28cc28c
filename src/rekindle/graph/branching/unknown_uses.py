"""Tensors that code which was left out uses, or may use: what belongs to them can be in no unit group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from rekindle.graph.branching.left_out import OPERATION, LeftOut, Pieces
from rekindle.graph.branching.plain_values import modules_in
from rekindle.graph.branching.real_run import ModuleCall
from rekindle.graph.branching.source_reach import reach_of
from rekindle.graph.export import first_name
from rekindle.graph.modules import tensors_of
from rekindle.graph.names import canonical
from rekindle.graph.operations import Call
from rekindle.graph.trace_log import Location, TraceLog
from rekindle.graph.unit_graph import OUTSIDE
from rekindle.graph.value import Value


def left_out_values(trace_log: TraceLog, inputs: Sequence[Value], location: Location, shapes: Any) -> list[Value]:
    """Write down a module that is left out, and return what it returns: values of which nothing is known."""
    Call(trace_log, OPERATION, left_out_values, tuple(inputs), {}, shapes, location)
    gap = trace_log.gap(inputs, location)
    return [replace(gap, shape=shape) for shape in shapes]


def note_gaps(trace_log: TraceLog) -> None:
    """Keep parameters that enter something unknown out of groups: what else they do there is not known."""
    entering = [name for value in trace_log.gaps if not value.data for name in sorted(value.sources)]
    _forbid(trace_log, {name: trace_log.reasons[name] for name in entering})


def note_left_out(trace_log: TraceLog, model: nn.Module, found: Pieces, names: Mapping[str, str]) -> None:
    """Write down what a model that was exported in pieces does not tell.

    Nothing that belongs to a tensor with uses that nobody looked at may become a group. A model that is left out as a
    whole still returns something, of which nothing is known.
    """
    for part in found.left_out:
        trace_log.not_understood.setdefault(str(part.location))
        if part.call is found.run.start:
            shapes = [tuple(x.shape) for x in pytree.tree_leaves(part.call.output) if isinstance(x, Tensor)]
            given = [x for x in pytree.tree_leaves((part.call.args, part.call.kwargs)) if isinstance(x, Tensor)]
            values = [Value(tuple(x.shape), data=True) for x in given]
            for value in left_out_values(trace_log, values, part.location, shapes):
                trace_log.output(value)
    unknown = unknown_uses(model, found, names)
    tensors = tensors_of(model)
    unused = {name for name in unknown if name not in found.run.used and _would_be_noticed(tensors.get(name))}
    _forbid(trace_log, {name: OUTSIDE if name in unused else why for name, why in unknown.items()})
    seen = found.run.used.keys() | {axis.tensor for axis in trace_log.axes}
    kept = sorted(unknown.keys() & seen & tensors.keys())
    trace_log.gaps += [Value(tuple(tensors[name].shape), param=name) for name in kept]  # their scale stays


def _would_be_noticed(tensor: Tensor | None) -> bool:
    """Tell whether a real run knows a tensor again where it is used: by its memory."""
    return tensor is not None and tensor.layout == torch.strided


def _forbid(trace_log: TraceLog, unknown: Mapping[str, str]) -> None:
    """Let no unit of these tensors become part of a group, for a reason each."""
    trace_log.reasons |= unknown
    trace_log.forbidden |= unknown.keys()
    for axis in trace_log.axes:
        if axis.tensor in unknown:
            trace_log.opaque_labels.append((torch.arange(axis.start, axis.start + axis.size), unknown[axis.tensor]))


def unknown_uses(model: nn.Module, found: Pieces, names: Mapping[str, str]) -> dict[str, str]:
    """Return for each tensor that is used, or may be used, where nobody looks, the reason.

    Args:
        model: The whole model.
        found: What was exported of it.
        names: For each name of a tensor the canonical one.
    """
    unknown: dict[str, str] = {}
    inside = _Inside(model, names)
    for part in found.left_out:
        for name, why in (*_owned(part, found), *_seen_outside(part, found, inside), *_held(part, inside)):
            unknown.setdefault(first_name(names, name), why)
    crossing = next((part for part in found.left_out if _is_crossed(part, found)), None)
    if crossing is not None:
        why = f"tensors enter or leave {crossing.location} by an attribute, so that their readers are not known"
        unknown |= {first: why for first in names.values()}
    return unknown


def multiplies_unseen(found: Pieces) -> bool:
    """Tell whether code that is left out multiplied two activations: queries and keys are not seen there."""
    parts = {id(part.module) for part in found.left_out}
    return any(id(call.module) in parts for call in found.run.products)


def _owned(part: LeftOut, found: Pieces) -> Iterator[tuple[str, str]]:
    """Yield the tensors of a module that is left out, but for those inside of what it calls and does not open."""
    calls = [inner for call in found.run.calls_of(part.module) for inner in call.inner]
    called = {id(call.module): call.module for call in calls if call.module is not part.module}
    reach = reach_of(part.module)
    for inner, module in part.module.named_modules(remove_duplicate=False):
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        within = next(_within(inner, part.module, called), None)
        for name, _ in own:
            full = ".".join(word for word in (part.path, inner, name) if word)
            below = ".".join(word for word in (inner, name) if word)
            if within is None:
                yield full, f"used in {part.location}"
            elif reach.exposes(within, part.module.get_submodule(within), below[len(within) + 1 :]):
                yield full, f"may be used in {part.location}"


def _within(inner: str, module: nn.Module, called: Mapping[int, nn.Module]) -> Iterator[str]:
    """Yield the path of a called module that a path leads through, outermost first."""
    words = inner.split(".") if inner else []
    for n in range(1, len(words) + 1):
        path = ".".join(words[:n])
        if id(module.get_submodule(path)) in called:
            yield path


class _Inside:
    """Knows the canonical names of all tensors inside of a module."""

    def __init__(self, model: nn.Module, names: Mapping[str, str]) -> None:
        self._paths: dict[int, list[str]] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            self._paths.setdefault(id(module), []).append(canonical(path))
        self._names = names
        self._known: dict[int, set[str]] = {}

    def knows(self, module: nn.Module) -> bool:
        return id(module) in self._paths

    def __call__(self, module: nn.Module) -> set[str]:
        if id(module) not in self._known:
            starts = tuple(f"{path}." if path else "" for path in self._paths[id(module)])
            self._known[id(module)] = {first for name, first in self._names.items() if name.startswith(starts)}
        return self._known[id(module)]


def _held(part: LeftOut, inside: _Inside) -> Iterator[tuple[str, str]]:
    """Yield the tensors of modules that are kept in plain attributes, lists or objects of what is left out."""
    for module in part.module.modules():
        kept = [value for name, value in vars(module).items() if name != "_modules"]
        for held in (held for value in kept for held in modules_in(value) if inside.knows(held)):
            yield from ((name, f"may be used in {part.location}") for name in sorted(inside(held)))


def _seen_outside(part: LeftOut, found: Pieces, inside: _Inside) -> Iterator[tuple[str, str]]:
    """Yield tensors that a real run used in the module's own code, or in a part of it that they do not belong to."""
    for name, calls in found.run.used.items():
        for call in calls:
            side = _side(call, part.module)
            if side is not None and (side.module is part.module or name not in inside(side.module)):
                yield name, f"used in {part.location}"
                break


def _is_crossed(part: LeftOut, found: Pieces) -> bool:
    """Tell whether tensors go into a module that is left out, out of it, or between what it calls, unseen."""
    for made, used in found.run.smuggled:
        sides = [_side(call, part.module) for call in (made, used)]
        if sides[0] is not sides[1]:
            return True
    return False


def _side(call: ModuleCall, module: nn.Module) -> ModuleCall | None:
    """Return which call directly inside of a module a call belongs to, or the module's own; None outside."""
    chain = list(call.above())
    at = next((n for n, each in enumerate(chain) if each.module is module), None)
    return None if at is None else chain[max(at - 1, 0)]
