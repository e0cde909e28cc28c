"""Models with a past, for checks: one step of training, so that gradients and optimizer moments are there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from rekindle.edits.edit import Edit
from rekindle.graph import UnitGraph, trace
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.modules import parameters_of, tensors_of
from rekindle.testing.zoo import ZooModel

Maker = Callable[[Iterable[Tensor]], Optimizer]
Check = Callable[[Any, ZooModel], None]


def sgd(parameters: Iterable[Tensor]) -> Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def amsgrad(parameters: Iterable[Tensor]) -> Optimizer:
    """AdamW with a third moment."""
    return torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True)


def aged(member: ZooModel, make: Maker = torch.optim.Adam) -> tuple[nn.Module, UnitGraph, Optimizer]:
    """Return a zoo model after one step of training, its graph, and its optimizer.

    Model and optimizer are new objects every time; the step itself is taken once in a process.
    """
    model = member.build()
    optimizer = make(model.parameters())
    _past(member, make).give(model, optimizer)
    return model, graph_of(member), optimizer


@lru_cache(maxsize=64)
def graph_of(member: ZooModel) -> UnitGraph:
    """Return the graph of a zoo model, traced once in a process."""
    return trace(member.build(), member.example())


@lru_cache(maxsize=64)
def initial(member: ZooModel) -> Mapping[str, Tensor]:
    """Return the weights that a zoo model begins with, built once in a process; they are for reading."""
    return bits(member.build())


@dataclass(frozen=True, eq=False)
class _Past:
    """What one step of training left behind, parameters in the model's order."""

    tensors: Mapping[str, Tensor]
    gradients: list[Tensor | None]
    states: list[dict[str, Any]]  # the optimizer's, by parameter

    def give(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Give copies of it to a model that was just built, and to its optimizer."""
        with torch.no_grad():
            for name, tensor in tensors_of(model).items():
                tensor.copy_(self.tensors[name])
        for parameter, gradient, state in zip(model.parameters(), self.gradients, self.states, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
            if state:
                optimizer.state[parameter] = {key: _copied(value) for key, value in state.items()}


@lru_cache(maxsize=128)
def _past(member: ZooModel, make: Maker) -> _Past:
    model = member.build()
    optimizer = make(model.parameters())
    learn(model, member.example(), optimizer)
    parameters = list(model.parameters())
    return _Past(bits(model), [p.grad for p in parameters], [optimizer.state.get(p, {}) for p in parameters])


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def learn(model: nn.Module, example: Any, optimizer: Optimizer) -> None:
    """Take one step toward smaller outputs."""
    args, kwargs = as_call(model, example)
    leaves = [x for x in pytree.tree_leaves(model(*args, **kwargs)) if isinstance(x, Tensor) and x.is_floating_point()]
    optimizer.zero_grad()
    torch.stack([x.square().mean() for x in leaves]).sum().backward()
    optimizer.step()


def bits(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of every parameter and buffer."""
    return {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}


def memory(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return a copy of everything that an optimizer keeps of parameters, as "parameter|what"."""
    return {
        f"{name}|{key}": torch.as_tensor(value).clone()
        for name, parameter in parameters_of(model).items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, (Tensor, int, float))
    }


def moments(optimizer: Optimizer, parameter: Tensor) -> list[Tensor]:
    """Return what an optimizer keeps of a parameter with one entry for each element; a step counter is none."""
    kept = optimizer.state.get(parameter, {}).items()
    return [
        value for key, value in kept if isinstance(value, Tensor) and value.shape == parameter.shape and key != "step"
    ]


def same(before: Mapping[str, Tensor], after: Mapping[str, Tensor], complaint: str) -> None:
    """Assert that two sets of tensors are equal bit by bit."""
    assert set(before) == set(after), f"{complaint} names: {sorted(set(before) ^ set(after))}"
    for name, tensor in before.items():
        other = after[name]
        assert (tensor.shape, tensor.dtype) == (other.shape, other.dtype), f"{complaint} {name}"
        assert torch.equal(tensor, other) or _equal_with_nan(tensor, other), f"{complaint} {name}"


def _equal_with_nan(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def regions(edits: Iterable[Edit], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return for each edited tensor a mask of all elements that some edit speaks of."""
    found: dict[str, Tensor] = {}
    for edit in edits:
        mask = edit.reach(*(tensors[name].detach() for name in (edit.tensor, *edit.reads)))
        found[edit.tensor] = found[edit.tensor] | mask if edit.tensor in found else mask
    return found


def hooks(model: nn.Module) -> list[int]:
    """Return how many hooks each module has."""
    return [hooks_of(module) for module in model.modules()]


def hooks_of(module: nn.Module) -> int:
    """Return how many hooks a module itself has."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind, ())) for kind in kinds)


def overwrite(model: nn.Module, spoil: Callable[[Tensor], Tensor]) -> None:
    """Replace every parameter's values; for checks only."""
    model.load_state_dict({n: spoil(p.detach()) for n, p in model.named_parameters()}, strict=False)


def rank_one(values: Tensor) -> Tensor:
    """Return a tensor of the same shape whose matrices all have rank one."""
    return torch.ones_like(values) if values.dim() > 1 else values


class OneAtATime(Mapping[str, Tensor]):
    """Tensors that are read one by one, as from a file: every look gives a new copy."""

    def __init__(self, stored: Mapping[str, Tensor]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> Tensor:
        return self._stored[name].clone()

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)
