"""What a forward pass leaves behind in a model beside its tensors: attributes, lists, plain objects."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

NOT_LOOKED_INTO = (nn.Module, torch.Tensor, torch.optim.Optimizer, type, types.ModuleType, types.FunctionType)


@contextlib.contextmanager
def attributes_kept(model: nn.Module) -> Iterator[None]:
    """Put back what a run of ours assigns: a last activation, a cache, the distribution of a policy.

    After `torch.export` these would be tensors without values. Attributes of modules are put back, and what is in
    lists, dicts and plain objects that they hold, one level deep.
    """
    before = [(place, _content(place)) for place in _places(model)]
    try:
        yield
    finally:
        for place, content in before:
            _put_back(place, content)


def _places(model: nn.Module) -> Iterator[Any]:
    seen: set[int] = set()
    for module in model.modules():
        yield module.__dict__
        for value in list(module.__dict__.values()):
            if isinstance(value, (list, dict)):
                place: Any = value
            elif hasattr(value, "__dict__") and not isinstance(value, NOT_LOOKED_INTO):
                place = value.__dict__
            else:
                continue
            if isinstance(place, (list, dict)) and id(place) not in seen:
                seen.add(id(place))
                yield place


def _content(place: list[Any] | dict[Any, Any]) -> list[Any] | dict[Any, Any]:
    return list(place) if isinstance(place, list) else dict(place)


def _put_back(place: Any, content: Any) -> None:
    if isinstance(place, list):
        if list(map(id, place)) != list(map(id, content)):
            place[:] = content
        return
    for name in [name for name in place if name not in content]:
        del place[name]
    for name, value in content.items():
        if name not in place or place[name] is not value:
            place[name] = value
