"""What every method that is an optimizer promises; run by `contract.check_method`."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rekindle.errors import EditError, NoEffectWarning
from rekindle.methods.apply import apply_
from rekindle.testing.aged import Check, bits, graph_of, learn, memory, same
from rekindle.testing.zoo import ZooModel


def built(method: Any, member: ZooModel) -> tuple[nn.Module, Optimizer]:
    """Return a zoo model and the optimizer for it."""
    model = member.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)
        return model, method.build(model, member.example(), graph=graph_of(member))


def check_it_trains_every_parameter_once(method: Any, member: ZooModel) -> None:
    """Every parameter that takes gradients is in one group, once, and moves."""
    model, optimizer = built(method, member)
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len(set(held)), "a parameter is in two groups"
    missing = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held]
    assert not missing, f"not trained: {missing}"
    before = bits(model)
    learn(model, member.example(), optimizer)
    moving = [name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())]
    still = [name for name in moving if torch.equal(before[name], dict(model.named_parameters())[name])]
    assert not still, f"has a gradient and did not move: {still}"
    assert all(torch.isfinite(p).all() for p in model.parameters()), "weights are not finite"


def check_identity_changes_nothing(method: Any, member: ZooModel) -> None:
    """With its identity settings (a learning rate of zero) no weight moves."""
    model, optimizer = built(type(method)(**method.identity), member)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    learn(model, member.example(), optimizer)
    same(before, {name: p.detach().clone() for name, p in model.named_parameters()}, "identity settings moved")


def check_a_saved_state_goes_on_bit_equal(method: Any, member: ZooModel) -> None:
    """The state dict is all that it takes to go on."""
    model, optimizer = built(method, member)
    for _ in range(2):
        learn(model, member.example(), optimizer)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    for _ in range(2):
        learn(model, member.example(), optimizer)
    other, again = built(method, member)
    other.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    for _ in range(2):
        learn(other, member.example(), again)
    same(bits(model), bits(other), "after resuming, another")
    same(memory(model, optimizer), memory(other, again), "after resuming, another")


def check_frozen_parameters_stay(method: Any, member: ZooModel) -> None:
    """A parameter that takes no gradients keeps every bit."""
    model = member.build()
    still = next(model.parameters()).requires_grad_(False)
    before = still.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)
        optimizer = method.build(model, member.example(), graph=graph_of(member))
    learn(model, member.example(), optimizer)
    assert torch.equal(still, before), "a frozen parameter was changed"


def check_its_state_is_known_or_refused(method: Any, member: ZooModel) -> None:
    """After a treatment training goes on; state whose meaning is not known is refused before anything is written.

    An optimizer of your own says what its state means by `state_begins_at`, see CONTRIBUTING.
    """
    model, optimizer = built(method, member)
    for _ in range(2):
        learn(model, member.example(), optimizer)
    before, kept = bits(model), memory(model, optimizer)
    reference = {name: tensor.clone() for name, tensor in member.build().state_dict().items()}
    try:
        apply_("welsr", model, optimizer, graph=graph_of(member), reference=reference)
    except EditError:
        same(before, bits(model), "changed in spite of the error:")
        same(kept, memory(model, optimizer), "state changed in spite of the error:")
        return
    learn(model, member.example(), optimizer)
    assert all(torch.isfinite(p).all() for p in model.parameters()), "weights are not finite after a treatment"


OPTIMIZER: tuple[Check, ...] = (
    check_it_trains_every_parameter_once,
    check_identity_changes_nothing,
    check_a_saved_state_goes_on_bit_equal,
    check_frozen_parameters_stay,
    check_its_state_is_known_or_refused,
)
