"""What can be seen of a module from outside: what it is given, what it gives, and the states inside a recurrent layer.

A side is "input" (the first argument), "state" (the hidden state that a recurrent cell is given beside it), "output",
or "layer 0", "layer 1", ...: what a lower layer of a recurrent module hands to the next. The last is seen by nobody but
the module itself, so that those layers are run once more, without gradients and without dropout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

INPUT, STATE, OUTPUT, LAYER = "input", "state", "output", "layer "

TORCHS = [cls.forward for cls in (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell)]

Look = Callable[[nn.Module, Callable[[], Tensor | None]], None]  # the module, and what gives the tensor if asked for


def attach(module: nn.Module, side: str, look: Look, mark: Callable[[Any], Any] = lambda hook: hook) -> Any:
    """Call `look` whenever the module runs; return the handle that ends it.

    Args:
        module: The module.
        side: What is looked at.
        look: Is given the module and a function that returns the tensor, or None where there is none.
        mark: Put around the hook.
    """
    if side == OUTPUT:

        @torch.compiler.disable
        def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            look(module, functools.partial(first_tensor, output))

        return module.register_forward_hook(mark(after))

    @torch.compiler.disable
    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        look(module, functools.partial(_given, module, side, args))

    return module.register_forward_pre_hook(mark(before))


def first_tensor(item: Any) -> Tensor | None:
    """Return a tensor, the first of several, or the values of a packed sequence; None where there is none."""
    if isinstance(item, PackedSequence):
        return item.data
    if isinstance(item, (tuple, list)):
        return first_tensor(item[0]) if item else None
    return item if isinstance(item, Tensor) else None


def _given(module: nn.Module, side: str, args: tuple[Any, ...]) -> Tensor | None:
    if side == STATE:
        return first_tensor(args[1]) if len(args) > 1 else None
    if side.startswith(LAYER):
        return _handed_on(module, int(side.removeprefix(LAYER)), args)
    return first_tensor(args[0]) if args else None


def is_torchs(module: nn.Module) -> bool:
    """Tell whether a recurrent module runs as torch wrote it, so that it is known what its sides are."""
    return type(module).forward in TORCHS


@torch.no_grad()
def _handed_on(module: nn.Module, layer: int, args: tuple[Any, ...]) -> Tensor | None:
    """Return what a layer of a recurrent module hands to the next: [..., directions * state]."""
    assert isinstance(module, nn.RNNBase) and is_torchs(module)
    count = (layer + 1) * (2 if module.bidirectional else 1)
    states = args[1] if len(args) > 1 else None
    if states is not None:
        states = states[:count] if isinstance(states, Tensor) else tuple(each[:count] for each in states)
    with torch.backends.cudnn.flags(enabled=False):  # which warns of weights that are a part of its own chunk
        given: Any = type(module).forward(_lower_layers(module, layer + 1), args[0], states)
    return first_tensor(given)


def _lower_layers(module: nn.RNNBase, count: int) -> nn.RNNBase:
    """Return the lower layers as a module of their own, on the same tensors, without hooks and dropout."""
    each = len(module._flat_weights) // module.num_layers
    lower = object.__new__(type(module))
    lower.__dict__.update(module.__dict__, num_layers=count, dropout=0.0, training=False)
    lower.__dict__["_flat_weights"] = module._flat_weights[: count * each]
    return lower
