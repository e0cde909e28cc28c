"""Facts about modules and tensors: what a forward pass in evaluation mode depends on, weights left aside."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rekindle.graph.facts.looking import Facts, looks_at
from rekindle.graph.facts.values import mapping
from rekindle.graph.own_run import is_watching

LARGE = 1 << 16  # elements of a tensor whose values are looked at; of a larger one, whether it was written to
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
FLAGS = ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")
# Of a module: what is looked at by itself, and what has no effect on a forward pass of ours.
APART = frozenset((*HOOKS, *FLAGS, "_parameters", "_buffers", "_modules", "training", "__getstate__")) | frozenset(
    "_compiled_call_impl _is_torch_compile _non_persistent_buffers_set _state_dict_hooks _state_dict_pre_hooks "
    "_load_state_dict_pre_hooks _load_state_dict_post_hooks".split()
)


def model(facts: Facts, item: nn.Module) -> None:
    """Look at a model: first at all that is registered, so that whoever else holds it holds what was met before."""
    every = list(item.modules())
    for each in every:
        facts.is_new(each)
    for each in every:
        registered(facts, each)
    for each in every:
        attributes(facts, each)


@looks_at(nn.Module)
def not_registered(facts: Facts, item: nn.Module) -> None:
    """Look at a module that is no part of the model, but held: nobody sets its mode in a run of ours."""
    if facts.is_new(item):
        facts.found.append(item.training)
        registered(facts, item)
        attributes(facts, item)


def registered(facts: Facts, item: nn.Module) -> None:
    """Look at class, parameters, buffers and children of a module."""
    own = item.__dict__
    facts.kind(type(item))
    for table in (own["_parameters"], own["_buffers"]):
        for name, held in table.items():
            facts.found.append(name)
            tensor(facts, held)
    for name, child in own["_modules"].items():
        facts.found.append(name)
        facts.look(child)


def attributes(facts: Facts, item: nn.Module) -> None:
    """Look at hooks and plain attributes of a module."""
    own = item.__dict__
    for name in HOOKS:
        if own[name]:
            hooks(facts, name, own[name], [own[flag] for flag in FLAGS])
    for name, value in own.items():
        if name in APART:
            continue
        facts.found.append(name)
        if isinstance(value, Tensor) and _is_computed(name, own["_parameters"]):
            tensor(facts, value)
        else:
            facts.look(value)


def hooks(facts: Facts, name: str, table: Mapping[int, Any], flags: Iterable[Mapping[int, bool]] = ()) -> None:
    """Look at hooks in their order, but not at those of ours that watch a training: they do nothing in our runs."""
    for number, hook in table.items():
        if not is_watching(hook):
            facts.found += (name, *(number in flag for flag in flags))
            facts.look(hook)


def tensor(facts: Facts, item: Tensor | None) -> None:
    """Look at shape and type of a tensor."""
    if item is None:
        facts.found.append(None)
    elif facts.is_new(item):
        layout = item.stride() if item.layout is torch.strided else item.layout
        facts.found += (weakref.ref(type(item)), item.shape, layout, item.dtype, item.device, item.requires_grad)
        if item.__dict__:
            mapping(facts, item.__dict__)


@looks_at(Tensor, nn.Parameter)
def constant(facts: Facts, item: Tensor) -> None:
    """Look at a tensor that is not registered, and at its values: an index, a mask, a flag."""
    if facts.was_met(item) or not facts.values or item.device.type == "meta":
        tensor(facts, item)
        return
    tensor(facts, item)
    if item.numel() <= LARGE and type(item) in (Tensor, nn.Parameter):
        flat = item.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        facts.found.append(hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).digest())
    else:
        facts.same(item)
        facts.found.append(item._version)


@looks_at(PackedSequence)
def packed(facts: Facts, item: PackedSequence) -> None:
    """Look at sequences that are packed together; how long they are says how they are run through."""
    for part in (*item, item.batch_sizes.tolist()):
        facts.look(part)


def _is_computed(name: str, parameters: Mapping[str, Any]) -> bool:
    """Tell whether torch's old weight_norm or spectral_norm computes an attribute anew at each call."""
    return f"{name}_v" in parameters or f"{name}_orig" in parameters
