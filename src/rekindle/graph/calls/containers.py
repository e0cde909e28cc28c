"""Containers of tensors that `torch.utils._pytree` does not know: dataclasses, namespaces, mappings of any class.

`torch.export` refuses them, and nobody finds the tensors inside. Here they are opened into dicts and closed again, each
as a copy of the one that was given, so that no class has to be registered with torch for the rest of the process.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from rekindle.graph.calls.inputs import Arguments
from rekindle.graph.forwards import forwards_replaced


def opened(value: Any) -> Any:
    """Return a structure with a dict for each container that pytree does not know.

    Example:
        >>> from collections import UserDict
        >>> opened([UserDict(a=1), (2, 3)])
        [{'a': 1}, (2, 3)]
    """
    return pytree.tree_map(_open, value)


def _open(leaf: Any) -> Any:
    held = _held(leaf)
    return leaf if held is None else {name: opened(each) for name, each in held.items()}


def _held(leaf: Any) -> dict[Any, Any] | None:
    """Return what a container holds, by name; None for what is none."""
    if isinstance(leaf, Mapping):
        return dict(leaf)
    if isinstance(leaf, SimpleNamespace):
        return dict(vars(leaf))
    if is_dataclass(leaf) and not isinstance(leaf, (type, nn.Module)):
        return {field.name: getattr(leaf, field.name) for field in fields(leaf) if hasattr(leaf, field.name)}
    return None


def closed(value: Any, like: Any) -> Any:
    """Return an opened structure with the containers of the structure that it was opened from."""
    leaves, spec = pytree.tree_flatten(like)
    parts = spec.flatten_up_to(value)
    return pytree.tree_unflatten([_close(part, leaf) for part, leaf in zip(parts, leaves, strict=True)], spec)


def _close(part: Any, leaf: Any) -> Any:
    held = _held(leaf)
    if held is None:
        return part
    whole = {name: closed(part[name], each) for name, each in held.items()}
    if isinstance(leaf, Mapping) and not isinstance(leaf, MutableMapping):
        return whole  # nothing can be written into a copy of it
    new = copy.copy(leaf)
    for name, each in whole.items():
        if isinstance(leaf, Mapping):
            new[name] = each
        else:
            object.__setattr__(new, name, each)  # a frozen dataclass too: it is a copy of ours
    return new


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return a structure with a function applied to each of its tensors; the one that was given stays as it is."""
    return closed(pytree.tree_map_only(Tensor, function, opened(value)), value)


def tensors_in(value: Any) -> list[Tensor]:
    """Return all tensors of a structure, in order."""
    return [leaf for leaf in pytree.tree_leaves(opened(value)) if isinstance(leaf, Tensor)]


def _as_given(value: Any, like: Any) -> Any:
    """Close an argument as the one that was given; a hook may have added it, or changed what is in it."""
    try:
        return closed(value, like)
    except ValueError:
        return value


@contextlib.contextmanager
def in_known_containers(model: nn.Module, call: Arguments) -> Iterator[Arguments]:
    """Let a model take opened arguments and give opened results, for the time of the context; yields the arguments."""
    own = model.forward

    @functools.wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        positional = [_as_given(each, call.args[n] if n < len(call.args) else None) for n, each in enumerate(args)]
        named = {name: _as_given(each, call.kwargs.get(name)) for name, each in kwargs.items()}
        return opened(own(*positional, **named))

    with forwards_replaced([(model, forward)]):
        yield Arguments(opened(call.args), opened(call.kwargs))
