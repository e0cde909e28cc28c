"""Ages of elements that began again lately: an optimizer's own state does not know them, so a Keeper carries them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from rekindle.edits import renewal
from rekindle.edits.optimizer_state import inner
from rekindle.graph.modules import tensors_of

Ages = list[dict[str, Any]]


def ages_of(model: nn.Module, optimizers: Sequence[Any]) -> Ages:
    """Return for each optimizer the elements of a model that began again lately."""
    names = {tensor: name for name, tensor in tensors_of(model).items()}
    return [copied(renewal.state_of(each, names)) for each in map(inner, optimizers)]


def give_ages(model: nn.Module, optimizers: Sequence[Any], ages: Sequence[Mapping[str, Any]]) -> None:
    """Give ages to the optimizers that train the elements, whichever had them before."""
    every = {name: each for saved in ages for name, each in saved.items()}
    for optimizer in map(inner, optimizers):
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        own = {name: tensor for name, tensor in tensors_of(model).items() if id(tensor) in held}
        renewal.load(optimizer, own, copied({name: each for name, each in every.items() if name in own}))


def copied(state: Any) -> Any:
    """Return a state with copies of its tensors."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), state)
