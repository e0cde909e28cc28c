"""Tensors that share memory without being one tensor: what is written to one of them is written to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def overlapping(tensors: Mapping[str, Tensor], aliases: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of tensors that share memory, without those that are one object or known to be tied.

    Parts of one large buffer that do not overlap, as a recurrent layer has them on a GPU, are no such pairs.

    Example:
        >>> import torch
        >>> one = torch.ones(2, 3)
        >>> list(overlapping({"a": one, "b": one.t(), "c": torch.ones(2), "d": one}, {"b": ("d",)}))
        [('a', 'b')]
    """
    known = {frozenset((name, other)) for name, others in aliases.items() for other in others}
    spans = sorted((*_span(tensor), name) for name, tensor in tensors.items() if _has_memory(tensor))
    open_until: list[tuple[int, str]] = []
    for begin, end, name in spans:
        open_until = [(until, other) for until, other in open_until if until > begin]
        for _, other in open_until:
            pair = frozenset((name, other))
            if tensors[name] is not tensors[other] and pair not in known:
                yield min(name, other), max(name, other)
        open_until.append((end, name))


def _has_memory(tensor: Tensor) -> bool:
    """Tell tensors whose elements lie at places that can be told from others: sparse, nested, of another class."""
    if not isinstance(tensor, Tensor) or is_lazy(tensor) or tensor.is_nested or tensor.layout != torch.strided:
        return False
    return not tensor.is_meta and tensor.numel() > 0 and not is_traceable_wrapper_subclass(tensor)


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor and the one behind its last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
