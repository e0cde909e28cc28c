"""Carry out surgery: built and checked before anything is written, put in after the edits, undone with them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.edits.inserted import MEAN, STD, FixedNormalization, Injected, is_standardized
from rekindle.edits.surgery import Standardize, Surgery, Twins
from rekindle.edits.write import Written, undo
from rekindle.errors import EditError, PlanError
from rekindle.graph.modules import submodule


@dataclass(frozen=True, eq=False)
class Prepared:
    """A operation with its parts built, not yet in the model."""

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
    new = _copy(template, operation.put).train(template.training).requires_grad_(True)
    twin = copy.deepcopy(new).requires_grad_(False).eval()
    prefix = f"{operation.module}.new."
    pairs = zip(template.parameters(), new.named_parameters(), strict=True)
    return Prepared(operation, module, frozen, (new, twin), {old: (prefix + name, p) for old, (name, p) in pairs})


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


@dataclass(eq=False)
class SurgeryLog:
    """What was carried out, with the way back."""

    back: list[Callable[[], Any]] = field(default_factory=list)
    watched: list[tuple[Tensor, int]] = field(default_factory=list)
    placed: list[tuple[dict[str, Any], str, nn.Module]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def take_back(self) -> None:
        """Undo, last step first."""
        while self.back:
            self.back.pop()()


def carry_out(
    ready: Sequence[Prepared], model: Any, optimizer: Optimizer | None = None, written: Sequence[Written] = ()
) -> SurgeryLog:
    """Put the prepared surgery into a model and keep its optimizer in step, all or nothing.

    Parameters that are frozen leave the optimizer's groups, and their state is dropped: with momentum or decoupled
    weight decay they would move on without a gradient. A new parameter takes the place of the one that it stands for,
    so that hyperparameters, schedulers and the order of a saved optimizer state still fit.

    Args:
        ready: From `prepare`.
        model: The model.
        optimizer: The optimizer that trains it.
        written: What was written before in the same treatment; put back if this fails.
    """
    log = SurgeryLog()
    try:
        for each in ready:
            _freeze(each, optimizer, log)
            _put(each, model, log)
    except BaseException:
        log.take_back()
        undo(written, force=True)
        raise
    return log


def undo_all(log: SurgeryLog, written: Sequence[Written], *, force: bool = False) -> None:
    """Take structure and tensors back to what they were.

    Raises:
        EditError: New parts were trained or replaced since, or tensors written, and `force` is not set; nothing is
            changed then.
    """
    touched = sum(tensor._version != version for tensor, version in log.watched)
    touched += sum(children.get(name) is not wrapper for children, name, wrapper in log.placed)
    if touched and not force:
        raise EditError(
            expected="new parts as they were put in",
            got=f"{touched} of {len(log.watched) + len(log.placed)} written or replaced since",
            fix="undo later changes first and before training goes on, or pass force=True to drop what they learned",
        )
    undo(written, force=force)
    log.take_back()


def _freeze(each: Prepared, optimizer: Optimizer | None, log: SurgeryLog) -> None:
    for parameter in each.frozen:
        log.back.append(partial(_set_flags, parameter, parameter.requires_grad, parameter.grad))
        parameter.requires_grad_(False)
        parameter.grad = None  # a gradient of zeros would let momentum and weight decay go on
    if optimizer is not None:
        _leave_optimizer(each, optimizer, log)
    elif each.instead:
        names = ", ".join(name for name, _ in each.instead.values())
        log.notices.append(f"no optimizer was given: hand {names} to yours, and take the frozen parameters out of it")


def _set_flags(parameter: nn.Parameter, requires_grad: bool, grad: Tensor | None) -> None:
    parameter.requires_grad_(requires_grad)
    parameter.grad = grad


def _leave_optimizer(each: Prepared, optimizer: Optimizer, log: SurgeryLog) -> None:
    log.back.append(_restore_optimizer(optimizer, each))
    frozen, placed = set(each.frozen), set()
    for group in optimizer.param_groups:
        names = group.get("param_names", [""] * len(group["params"]))
        kept = []
        for name, parameter in zip(names, group["params"], strict=True):
            if parameter in each.instead:
                kept.append(each.instead[parameter])
                placed.add(parameter)
            elif parameter not in frozen:
                kept.append((name, parameter))
        group["params"][:] = [parameter for _, parameter in kept]
        if "param_names" in group:
            group["param_names"][:] = [name for name, _ in kept]
    for parameter in frozen:
        optimizer.state.pop(parameter, None)
    left = [name for old, (name, _) in each.instead.items() if old not in placed]
    if left:
        log.notices.append(f"not in this optimizer, because what they stand for was not: {', '.join(left)}")


def _restore_optimizer(optimizer: Optimizer, each: Prepared) -> Callable[[], None]:
    groups = [(group, list(group["params"]), list(group.get("param_names", ()))) for group in optimizer.param_groups]
    state: dict[Tensor, Any] = {
        parameter: optimizer.state[parameter] for parameter in each.frozen if parameter in optimizer.state
    }

    def back() -> None:
        for group, parameters, names in groups:
            group["params"][:] = parameters
            if "param_names" in group:
                group["param_names"][:] = names
        for _, parameter in each.instead.values():
            optimizer.state.pop(parameter, None)
        optimizer.state.update(state)

    return back


def _put(each: Prepared, model: nn.Module, log: SurgeryLog) -> None:
    if each.twins is not None:
        _inject(each, model, log)
    elif isinstance(each.operation.put, Standardize):
        _standardize(each.module, each.operation.put, model, log)


def _inject(each: Prepared, model: nn.Module, log: SurgeryLog) -> None:
    assert each.twins is not None
    old, (new, twin) = each.module, each.twins
    modes = [(module, module.training) for module in old.modules()]
    log.back.append(partial(_set_modes, modes))
    wrapper = Injected(old.eval(), new, twin)
    places = [(m._modules, name) for m in model.modules() for name, child in m._modules.items() if child is old]
    for children, name in places:  # a module that is registered twice is replaced twice
        log.back.append(partial(children.__setitem__, name, old))
        children[name] = wrapper
        log.placed.append((children, name, wrapper))
    log.watched += [(parameter, parameter._version) for parameter in new.parameters()]


def _set_modes(modes: Sequence[tuple[nn.Module, bool]]) -> None:
    for module, mode in modes:
        module.training = mode


def _standardize(module: nn.Module, put: Standardize, model: nn.Module, log: SurgeryLog) -> None:
    if is_standardized(module):
        for name, value in ((MEAN, put.mean), (STD, put.std)):
            buffer = getattr(module, name)
            log.back.append(partial(buffer.fill_, buffer.item()))
            buffer.fill_(value)
    else:
        log.back.append(reset_compiler)  # the last step back
        like = next((t for m in (module, model) for t in m.parameters() if t.is_floating_point()), torch.zeros(()))
        for name, value in ((MEAN, put.mean), (STD, put.std)):
            module.register_buffer(name, torch.tensor(value, dtype=like.dtype, device=like.device))
            log.back.append(partial(module._buffers.pop, name))
        log.back.append(module.register_forward_hook(FixedNormalization()).remove)
        reset_compiler()
    log.watched += [(buffer, buffer._version) for buffer in (getattr(module, MEAN), getattr(module, STD))]


def reset_compiler() -> None:
    """Make torch.compile look again: it does not notice hooks that come or go after it has compiled a module."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
