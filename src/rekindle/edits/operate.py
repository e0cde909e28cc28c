"""Surgery: built and checked before anything is written, put in after the edits, taken back with them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.edits.inserted import Injected
from rekindle.edits.optimizer_state import first_state, inner
from rekindle.edits.standardize import standardize
from rekindle.edits.surgery import Standardize, Surgery, Twins
from rekindle.edits.write import Journal
from rekindle.errors import PlanError
from rekindle.graph.modules import submodule
from rekindle.graph.plain import not_plain_in, valueless


@dataclass(frozen=True, eq=False)
class Prepared:
    """An operation with its parts built, not yet in the model."""

    operation: Surgery
    module: nn.Module
    frozen: tuple[nn.Parameter, ...]
    twins: tuple[nn.Module, nn.Module] | None = None
    instead: Mapping[nn.Parameter, tuple[str, nn.Parameter]] = field(default_factory=dict)


def prepare(surgery: Sequence[Surgery], model: Any) -> list[Prepared]:
    """Build what is to be put into a model, and check that it can be.

    Raises:
        PlanError: The target is no live model, or a module is not there or not one that can be replaced.
    """
    if not surgery:
        return []
    if not isinstance(model, nn.Module):
        raise PlanError(
            expected="a live model: the plan changes its structure",
            got=f"a {type(model).__name__}",
            fix="build the model, load the tensors into it, and treat that",
        )
    replaced = [operation.module for operation in surgery if isinstance(operation.put, Twins)]
    for path in replaced:
        if replaced.count(path) > 1 or any(other.startswith(f"{path}.") for other in replaced):
            raise PlanError(
                expected="one replacement of a module in one plan",
                got=f"several of {path} or of parts of it",
                fix="apply them one after the other",
            )
    return [_ready(operation, model) for operation in surgery]


def _ready(operation: Surgery, model: nn.Module) -> Prepared:
    module = submodule(model, operation.module)
    named = dict(model.named_parameters(remove_duplicate=False))
    frozen = tuple(named[name] for name in operation.freezes)
    if not isinstance(operation.put, Twins):
        return Prepared(operation, module, frozen)
    if module is model:
        raise PlanError(
            expected="a module inside the model: it is replaced by a wrapper in its parent",
            got="the whole model",
            fix="put your model into a module of your own (nn.Sequential(model)) and name the path there",
        )
    template = submodule(model, operation.put.template)
    _refuse_not_drawable(operation.put.template, template)
    new = _copy(template, operation.put).train(template.training).requires_grad_(True)
    twin = copy.deepcopy(new).requires_grad_(False).eval()
    prefix = f"{operation.module}.new."
    pairs = zip(template.parameters(), new.named_parameters(), strict=True)
    return Prepared(operation, module, frozen, (new, twin), {old: (prefix + name, p) for old, (name, p) in pairs})


def _refuse_not_drawable(path: str, template: nn.Module) -> None:
    """Refuse a module of which no trainable copy can be drawn."""
    tensors = dict(template.named_parameters())
    odd = dict.fromkeys(valueless(tensors), "on the meta device, without values") | not_plain_in(template)
    name, why = next(((n, w) for n, w in odd.items() if n not in tensors or tensors[n].numel()), ("", ""))
    if why:
        raise PlanError(
            expected=f"a module at {path} of plain floats, of which a trainable copy is made",
            got=f"{name}: {why}",
            fix="name another module, or take the model before it was converted and with its values; nothing was "
            "changed",
        )


def _copy(template: nn.Module, put: Twins) -> nn.Module:
    """Return a copy with fresh values; nobody else has seen it yet, so it may be written."""
    try:
        new = copy.deepcopy(template)
    except Exception as error:
        raise PlanError(
            expected=f"a module at {put.template} that can be copied",
            got=f"{type(error).__name__}: {error}",
            fix="old-style weight_norm cannot be: use torch.nn.utils.parametrizations",
        ) from error
    tensors = dict(new.named_parameters()) | dict(new.named_buffers())
    with torch.no_grad():
        for name, draw in put.draws.items():
            tensors[name].copy_(draw(tensors[name].detach()))
        for parameter in new.parameters():
            parameter.grad = None
    return new


def carry_out(ready: Sequence[Prepared], model: Any, optimizers: Sequence[Any], journal: Journal) -> list[str]:
    """Put the prepared surgery into a model and keep its optimizers in step.

    Parameters that are frozen leave the optimizers' groups, and their state is dropped: with momentum or decoupled
    weight decay they would move on without a gradient. A new parameter takes the place of the one that it stands for,
    so that hyperparameters, schedulers and the order of a saved optimizer state still fit.

    Args:
        ready: From `prepare`.
        model: The model.
        optimizers: The optimizers that train it.
        journal: Gets the way back.

    Returns:
        Words for the user.
    """
    notices: list[str] = []
    for each in ready:
        _freeze(each, journal)
        notices += _leave_optimizers(each, [inner(optimizer) for optimizer in optimizers], journal)
        if each.twins is not None:
            _inject(each, model, journal)
        elif isinstance(each.operation.put, Standardize):
            standardize(each.module, each.operation.put, model, journal)
    return notices


def _freeze(each: Prepared, journal: Journal) -> None:
    for parameter in each.frozen:
        journal.note(partial(_set_flags, parameter, parameter.requires_grad, parameter.grad))
        parameter.requires_grad_(False)
        parameter.grad = None  # a gradient of zeros would let momentum and weight decay go on


def _set_flags(parameter: nn.Parameter, requires_grad: bool, grad: Tensor | None) -> None:
    parameter.requires_grad_(requires_grad)
    parameter.grad = grad


def _leave_optimizers(each: Prepared, optimizers: Sequence[Any], journal: Journal) -> list[str]:
    if not optimizers:
        names = ", ".join(name for name, _ in each.instead.values())
        told = f"no optimizer was given: hand {names} to yours, and take the frozen parameters out of it"
        return [told] if each.instead else []
    frozen, placed = set(each.frozen), set()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            there = _leave_group(each, group, frozen, journal)
            for old in there:
                new = each.instead[old][1]
                if state := first_state(optimizer, group, old, new):
                    journal.set(optimizer.state, new, state)
            placed |= there
        for parameter in frozen:
            journal.drop(optimizer.state, parameter)
        for _, parameter in each.instead.values():
            journal.note(partial(optimizer.state.pop, parameter, None))  # what it learns is dropped on the way back
    left = [name for old, (name, _) in each.instead.items() if old not in placed]
    return [f"not in this optimizer, because what they stand for was not: {', '.join(left)}"] if left else []


def _leave_group(each: Prepared, group: dict[str, Any], frozen: set[nn.Parameter], journal: Journal) -> set[Any]:
    """Take frozen parameters out of a group and put new ones in their places; return those that were there."""
    names = group.get("param_names", [""] * len(group["params"]))
    kept, placed = [], set()
    for name, parameter in zip(names, group["params"], strict=True):
        if parameter in each.instead:
            kept.append(each.instead[parameter])
            placed.add(parameter)
        elif parameter not in frozen:
            kept.append((name, parameter))
    for key, new in (("params", [parameter for _, parameter in kept]), ("param_names", [name for name, _ in kept])):
        if key in group:
            journal.note(partial(_fill, group[key], list(group[key])))
            _fill(group[key], new)  # the list itself stays: schedulers and trainers hold on to it
    return placed


def _fill(held: list[Any], new: Sequence[Any]) -> None:
    held[:] = new


def _inject(each: Prepared, model: nn.Module, journal: Journal) -> None:
    assert each.twins is not None
    old, (new, twin) = each.module, each.twins
    journal.note(partial(_set_modes, [(module, module.training) for module in old.modules()]))
    wrapper = Injected(old.eval(), new, twin)
    places = [(m._modules, name) for m in model.modules() for name, child in m._modules.items() if child is old]
    for children, name in places:  # a module that is registered twice is replaced twice
        journal.set(children, name, wrapper)
    for parameter in new.parameters():
        journal.watch(parameter)


def _set_modes(modes: Sequence[tuple[nn.Module, bool]]) -> None:
    for module, mode in modes:
        module.training = mode
