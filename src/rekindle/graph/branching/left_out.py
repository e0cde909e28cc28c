"""Export what can be exported of a model: parts whose forward pass cannot be followed are left out by name.

The module whose forward pass stops `torch.export` is replaced, for the time of the export, by one operation without a
meaning, which returns tensors of the shapes that it returned in a real run. What enters it has readers that are not
known. The modules that it calls are exported on their own; of what goes in and comes out there nothing is known.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from rekindle.graph.branching.real_run import ModuleCall, RealRun
from rekindle.graph.branching.stops import RETURNS, Stop, stop_of_error, stop_of_shapes
from rekindle.graph.forwards import forwards_replaced
from rekindle.graph.names import canonical
from rekindle.graph.trace_log import Location

OPERATION = "left_out"
BECAUSE = "left out, because "
_LIBRARY = torch.library.Library("rekindle", "FRAGMENT")
_LIBRARY.define(f"{OPERATION}(Tensor[] inputs, str module, str why, str outputs) -> Tensor[]")

Export = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], torch.export.ExportedProgram]


@torch.library.register_fake(f"rekindle::{OPERATION}", lib=_LIBRARY)
def _fake(inputs: Sequence[Tensor], module: str, why: str, outputs: str) -> list[Tensor]:
    """Return tensors without values, of the shapes that are told."""
    return [torch.empty(shape, dtype=getattr(torch, dtype), device=on) for shape, dtype, on in json.loads(outputs)]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A module that is left out.

    Args:
        path: Its name in the whole model, as `named_modules` has it.
        module: The module.
        stop: Where export stopped in it.
        call: A call of it in the real run.
    """

    path: str
    module: nn.Module
    stop: Stop
    call: ModuleCall

    @property
    def location(self) -> Location:
        """Return where it stands and why it is left out, as an operation that is not understood."""
        return Location(canonical(self.path), BECAUSE + self.stop.why)


def is_left_out(place: str) -> bool:
    """Tell the place of a module that is left out from one of an operation that is not understood."""
    return BECAUSE in place


@dataclass(frozen=True, eq=False)
class Piece:
    """A program of a part of a model.

    Args:
        path: The part's name in the whole model; "" for the model itself.
        program: Its operations.
        border: What is left out around it; None for the model itself.
    """

    path: str
    program: torch.export.ExportedProgram
    border: Location | None = None


@dataclass(eq=False)
class Pieces:
    """Everything that was exported of a model, and what was left out."""

    run: RealRun
    pieces: list[Piece] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    calls: dict[tuple[int, tuple[Any, ...]], None] = field(default_factory=dict)  # what was tried


def pieces_of(model: nn.Module, run: RealRun, export: Export) -> Pieces:
    """Export a model in pieces.

    Args:
        model: The model, at rest.
        run: A real run of it.
        export: Exports one module, or raises.
    """
    found = Pieces(run)
    paths = {id(module): path for path, module in model.named_modules()}
    _explore(found, paths, run.start, export, None)
    return found


def _explore(found: Pieces, paths: dict[int, str], call: ModuleCall, export: Export, border: Location | None) -> None:
    """Export what one call computes, and what is inside of the parts that have to be left out."""
    key = (id(call.module), call.way)
    if key in found.calls:
        return
    found.calls[key] = None
    path = paths[id(call.module)]
    left: dict[int, LeftOut] = {}
    program = _without(left, paths, call, export)
    if program is not None:
        found.pieces.append(Piece(path, _placed(program, path), border))
    for part in left.values():
        found.left_out.append(part)
        for outer in found.run.calls_of(part.module, call):
            for inner in outer.inner:
                _explore(found, paths, inner, export, part.location)


def _without(
    left: dict[int, LeftOut], paths: dict[int, str], call: ModuleCall, export: Export
) -> torch.export.ExportedProgram | None:
    """Leave out one module after the other, till the rest can be exported; None when nothing is left."""
    while True:
        program, stop = _attempt(call, left, export)
        if stop is None:
            return program
        inner = dict(call.module.named_modules(remove_duplicate=False))
        for blamed in _blamed(inner.get(stop.path, call.module), stop, call, left, export):
            within = {id(module) for module in blamed.call.module.modules()}
            for other in [key for key in left if key in within]:
                del left[other]
            left[id(blamed.module)] = replace(blamed, path=paths[id(blamed.module)])
        if id(call.module) in left:
            return None


def _attempt(
    call: ModuleCall, left: Mapping[int, LeftOut], export: Export
) -> tuple[torch.export.ExportedProgram | None, Stop | None]:
    with _replaced(call, left):
        try:
            program = export(call.module, call.args, call.kwargs)
        except Exception as error:
            return None, stop_of_error(error, call.module)
    return program, stop_of_shapes(program)


def _blamed(
    module: nn.Module, stop: Stop, call: ModuleCall, left: Mapping[int, LeftOut], export: Export
) -> Iterator[LeftOut]:
    """Yield the module to leave out, and its like that stop on their own in the same way (the layers of a mixture)."""
    within = [each for each in call.all() if each.module is module]
    if not within:  # it stands in something that no real run goes through
        yield LeftOut("", call.module, stop, call)
        return
    first = within[0]
    while first is not call and (id(first.module) in left or not _can_be_replaced(first.module, call)):
        kind = RETURNS if id(first.module) not in left else stop.kind
        stop = replace(stop, kind=kind)
        assert first.parent is not None
        first = first.parent
    yield LeftOut("", first.module, stop, first)
    if first is call:
        return
    beside = {id(each) for each in (*(c.module for c in first.above()), *first.module.modules())} | set(left)
    for other in call.all():
        if type(other.module) is type(first.module) and id(other.module) not in beside:
            beside.add(id(other.module))
            own = _attempt(other, {}, export)[1]
            if own is not None and own.path == "" and _can_be_replaced(other.module, call):
                yield LeftOut("", other.module, own, other)


def _can_be_replaced(module: nn.Module, within: ModuleCall) -> bool:
    """Tell whether all that a module returns is tensors: on a number the code around it may branch unseen."""
    returned = [leaf for each in within.all() if each.module is module for leaf in pytree.tree_leaves(each.output)]
    return all(leaf is None or isinstance(leaf, Tensor) for leaf in returned)


@contextlib.contextmanager
def _replaced(call: ModuleCall, left: Mapping[int, LeftOut]) -> Iterator[None]:
    """Put the operation in the place of the forward passes that are left out."""
    calls = {id(part.module): [each for each in call.all() if each.module is part.module] for part in left.values()}
    with forwards_replaced([(part.module, _stand_in(part, calls[id(part.module)])) for part in left.values()]):
        yield


def _stand_in(part: LeftOut, calls: Sequence[ModuleCall]) -> Callable[..., Any]:
    outputs = iter([each.output for each in calls])

    def forward(*args: Any, **kwargs: Any) -> Any:
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        leaves, structure = pytree.tree_flatten(next(outputs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        told = json.dumps([[list(t.shape), str(t.dtype).removeprefix("torch."), str(t.device)] for t in tensors])
        location = part.location
        made = iter(torch.ops.rekindle.left_out(inputs, location.module, location.op, told))
        return pytree.tree_unflatten([next(made) if isinstance(x, Tensor) else x for x in leaves], structure)

    return forward


def _placed(program: torch.export.ExportedProgram, path: str) -> torch.export.ExportedProgram:
    """Let a part's operations say where they stand in the whole model."""
    graphs = [m for m in program.graph_module.modules() if isinstance(m, fx.GraphModule)] if path else []
    for node in (node for module in graphs for node in module.graph.nodes):
        stack = node.meta.get("nn_module_stack")
        if stack:
            placed = {key: (f"{path}.{own}" if own else path, cls) for key, (own, cls) in stack.items()}
            node.meta["nn_module_stack"] = placed
    return program
