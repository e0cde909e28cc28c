"""Which tensors hold plain floats, one value a place, and why others cannot be treated.

All that is written elsewhere about norms, draws and factors is meant for real floating-point values, each at a place of
its own in memory. This is the one file that tells other tensors: planning, the Keeper, metrics and the transaction ask
here, and leave such a tensor out by name, with this reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rekindle.graph.modules import modules_of, parameters_of, tensors_of
from rekindle.graph.names import is_statistic

PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INDICES = (torch.bool, torch.int64)  # masks and positions: of buffers these are no weights in another form
PACKED = "packed into an object that is neither parameter nor buffer, as quantized modules do"


def why_not_plain(tensor: Tensor) -> str:
    """Return why values of a tensor cannot be computed with, in a few words; empty if they can.

    A tensor on the meta device is judged by what it would be.

    Example:
        >>> why_not_plain(torch.zeros(2, dtype=torch.bfloat16)), why_not_plain(torch.zeros(2, dtype=torch.int8))
        ('', 'int8: whole numbers, which stand for others by a scale that is not known')
    """
    return why_not_in_place(tensor) or _why_not_numbers(tensor.dtype) or ("" if tensor.numel() else "it has no values")


def why_not_in_place(tensor: Tensor) -> str:
    """Return why a tensor's values cannot be read and written one by one, whatever they mean; empty if they can."""
    if is_lazy(tensor):
        return "not initialized: its shape is known when a batch has gone through the model"
    if tensor.is_nested:
        return "a nested tensor: its parts have different shapes"
    if tensor.layout != torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')}: not all of its values are stored"
    if tensor.is_quantized:
        return f"quantized ({_name(tensor.dtype)}): whole numbers with a scale"
    if _has_own_operations(tensor):
        return f"of class {type(tensor).__name__}, which has operations of its own"
    return "expanded or overlapping: several of its elements share memory" if overlaps_itself(tensor) else ""


def _why_not_numbers(dtype: torch.dtype) -> str:
    if dtype in PLAIN:
        return ""
    if dtype.is_complex:
        return f"{_name(dtype)}: the mathematics here is that of real numbers"
    if dtype.is_floating_point:
        return f"{_name(dtype)}: values that go with a scale, which is not known"
    return f"{_name(dtype)}: whole numbers, which stand for others by a scale that is not known"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _has_own_operations(tensor: Tensor) -> bool:
    """Tell tensors of classes that take operations over (torchao's, DTensor, fakes) from torch's own."""
    kind = type(tensor)
    dispatches = kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    known = (torch._C._disabled_torch_function_impl, Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
    function = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    return dispatches or function not in known


def overlaps_itself(tensor: Tensor) -> bool:
    """Tell whether two elements of a tensor lie at the same place; one without strides has no such places.

    Example:
        >>> overlaps_itself(torch.ones(3, 1).expand(3, 2)), overlaps_itself(torch.ones(3, 2).t())
        (True, False)
    """
    if tensor.is_nested or tensor.layout != torch.strided:
        return False
    steps = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    if not tensor.numel() or not steps:
        return False
    ends = [stride * size for stride, size in steps]
    if steps[0][0] and all(end <= step for end, (step, _) in zip(ends, steps[1:], strict=False)):
        return False  # each dimension steps over all that lies in those below
    if steps[0][0] == 0 or any(a == b for (a, _), (b, _) in pairwise(steps)):
        return True
    places = torch.zeros((), dtype=torch.int64)
    for stride, size in steps:
        places = places[..., None] + stride * torch.arange(size)
    return len(places.unique()) < tensor.numel()


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor; a nested one has none, and counts as a vector of all its values."""
    return {name: (t.numel(),) if t.is_nested else tuple(t.shape) for name, t in tensors.items()}


def not_plain(tensors: Mapping[str, Tensor], parameters: Collection[str]) -> dict[str, str]:
    """Return the tensors that hold no plain floats, with the reason.

    Args:
        tensors: By name.
        parameters: Names of those that are parameters. Of the others only those count that may be weights in another
            form, and running statistics that are not what they should be; counters, masks and positions are no weights.
    """
    found = {name: why for name, tensor in tensors.items() if (why := why_not_plain(tensor))}
    return {name: why for name, why in found.items() if _matters(name, tensors[name], name in parameters)}


def _matters(name: str, tensor: Tensor, parameter: bool) -> bool:
    if is_counter(name, tensor):
        return False
    return parameter or is_statistic(name) or (tensor.dtype not in INDICES and tensor.dim() > 1)


def is_counter(name: str, tensor: Tensor) -> bool:
    """Tell the counters of normalization layers, which are whole numbers and meant to be."""
    return is_statistic(name) and not tensor.is_floating_point() and not tensor.is_complex()


def not_plain_in(model: nn.Module) -> dict[str, str]:
    """Return parameters and buffers of a model that hold no plain floats, and weights that are packed into objects."""
    return {**not_plain(tensors_of(model), parameters_of(model)), **dict(_packed(model))}


def _packed(model: nn.Module) -> Iterator[tuple[str, str]]:
    for path, module in modules_of(model).items():
        held = {} if isinstance(module, torch.jit.ScriptModule) else vars(module)
        for name in (name for name, value in held.items() if isinstance(value, torch.ScriptObject)):
            yield f"{path}.{name}" if path else name, PACKED


def valueless(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors on the meta device, which have a shape and no values."""
    return [name for name, tensor in tensors.items() if tensor.is_meta]
