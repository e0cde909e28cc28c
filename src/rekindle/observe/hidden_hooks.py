"""Hooks that watch a training are no part of the model: a copy, or a file that `torch.save` writes, is without them."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

from torch import nn

from rekindle.graph.own_run import is_watching

_KINDS = ("_forward_pre_hooks", "_forward_hooks")
_GETSTATE = "__getstate__"


def keep_out_of_copies(module: nn.Module) -> None:
    """Leave watching hooks out when the module is copied or pickled."""
    module.__dict__[_GETSTATE] = partial(_state, module)


def let_into_copies(module: nn.Module) -> None:
    """Let the module be copied as its class does it, if no watching hook is left."""
    if not any(is_watching(hook) for kind in _KINDS for hook in getattr(module, kind).values()):
        module.__dict__.pop(_GETSTATE, None)


def _state(module: nn.Module) -> Any:
    """Return what the module's class gives to be copied, without watching hooks."""
    own = getattr(type(module), _GETSTATE, None)
    plain = own is None or own is getattr(object, _GETSTATE, None)
    state = dict(module.__dict__) if plain else own(module)  # type: ignore[misc]
    if isinstance(state, dict):
        state = {name: value for name, value in state.items() if name != _GETSTATE}
        for kind in _KINDS:
            state[kind] = OrderedDict((key, hook) for key, hook in state.get(kind, {}).items() if not is_watching(hook))
    return state
