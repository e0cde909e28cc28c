"""Tensors that a method keeps from step to step, taken from a state dict or from initial weights."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rekindle.errors import KeeperError
from rekindle.graph.plain import why_not_plain


def fitting(state: Mapping[str, Tensor], like: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return tensors of a state, on the device and in the precision of those that they stand for.

    Nothing is copied, except what shares its memory with the tensor that it stands for (a `model.state_dict()`).

    Args:
        state: Tensors by name; more than are asked for may be there.
        like: The tensors that they stand for; all must be in the state, with the same shape.
        what: What they are, for the error.

    Raises:
        KeeperError: A tensor is missing, has another shape, or holds no plain floats.
    """
    wrong = [name for name, tensor in like.items() if name not in state or state[name].shape != tensor.shape]
    if wrong:
        got = f"shape {tuple(state[wrong[0]].shape)}" if wrong[0] in state else "none"
        raise KeeperError(
            expected=f"{what} of shape {tuple(like[wrong[0]].shape)} for {wrong[0]}",
            got=f"{got} ({len(wrong)} of {len(like)} tensors do not fit)",
            fix="use weights and states of a model with the same layers and names",
        )
    odd = {name: why for name in like if state[name].numel() and (why := why_not_plain(state[name]))}
    if odd:
        name, why = next(iter(odd.items()))
        raise KeeperError(
            expected=f"{what} of plain floats for {name}",
            got=f"{why} ({len(odd)} of {len(like)} tensors are not)",
            fix="use weights and states from before they were converted",
        )
    return {name: _apart(state[name].detach().to(tensor), tensor) for name, tensor in like.items()}


def _apart(tensor: Tensor, live: Tensor) -> Tensor:
    return tensor.clone() if tensor.data_ptr() == live.data_ptr() else tensor
