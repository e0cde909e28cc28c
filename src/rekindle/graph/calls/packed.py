"""Packed sequences while a model is traced: as if all sequences were of the same length.

How many elements a `PackedSequence` has depends on the lengths, which are data; `torch.export` cannot follow that. What
units there are does not depend on it. So for the time of a trace sequences are packed at their full length, padding
included, recurrent layers run on them as on padded ones, and a packed example is made one of equal lengths. Only a
trace does so: whatever is computed for its values (`verify`, evidence, activations) runs as the model is written.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from rekindle.graph.forwards import forwards_replaced

TORCHS: list[Any] = [nn.LSTM.forward, nn.GRU.forward, nn.RNN.forward]  # a forward pass of somebody's own is left alone


def at_full_length(example: Any) -> Any:
    """Return arguments of a model with every packed sequence among them of equal lengths, padded with zeros.

    Example:
        >>> from torch.nn.utils.rnn import pack_sequence
        >>> at_full_length(pack_sequence([torch.ones(2), torch.ones(1)])).data
        tensor([1., 1., 1., 0.])
    """
    return pytree.tree_map(
        lambda leaf: _filled(leaf) if isinstance(leaf, PackedSequence) else leaf,
        example,
        is_leaf=lambda leaf: isinstance(leaf, PackedSequence),
    )


def _filled(packed: PackedSequence) -> PackedSequence:
    in_order = packed._replace(sorted_indices=None, unsorted_indices=None)
    padded, _ = pad_packed_sequence(in_order)  # [time, batch, ...]
    return packed._replace(data=padded.flatten(0, 1), batch_sizes=torch.full_like(packed.batch_sizes, padded.shape[1]))


@contextlib.contextmanager
def packed_at_full_length(model: nn.Module) -> Iterator[None]:
    """Let a model pack and unpack sequences at their full length, for the time of the context."""
    layers = [m for m in model.modules() if type(m).forward in TORCHS and "forward" not in m.__dict__]
    if not layers:
        yield
        return
    with forwards_replaced([(layer, functools.partial(_on_padded, layer)) for layer in layers]), _AtFullLength():
        yield


def _on_padded(layer: Any, input: Any, hx: Any = None) -> Any:
    """Run a recurrent layer; a packed sequence, of equal lengths, as a padded one."""
    forward, x = functools.partial(type(layer).forward, layer), input
    if not isinstance(x, PackedSequence):
        return forward(x, hx)
    padded = _padded(x.data, x.batch_sizes)
    states = hx if hx is None else layer.permute_hidden(hx, x.sorted_indices)
    output, last = forward(padded.transpose(0, 1) if layer.batch_first else padded, states)
    output = output.transpose(0, 1) if layer.batch_first else output
    return x._replace(data=output.flatten(0, 1)), layer.permute_hidden(last, x.unsorted_indices)


class _AtFullLength(TorchFunctionMode):
    """Packs and unpacks without a look at the lengths."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return STAND_INS.get(getattr(func, "__name__", ""), func)(*args, **(kwargs or {}))


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    x = x.transpose(0, 1) if batch_first else x
    return x.flatten(0, 1), torch.full((x.shape[0],), x.shape[1])


def _pad(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    padded = _padded(data, batch_sizes)
    more = total_length - len(padded)
    if more > 0:
        padded = torch.cat([padded, padded.new_full((more, *padded.shape[1:]), padding_value)])
    lengths = torch.full((padded.shape[1],), batch_sizes.shape[0])
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _padded(data: Tensor, batch_sizes: Tensor) -> Tensor:
    """Return [time, batch, ...]."""
    return data.unflatten(0, (batch_sizes.shape[0], -1))


STAND_INS: dict[str, Any] = {"_pack_padded_sequence": _pack, "_pad_packed_sequence": _pad}
