"""Activations of units, seen by hooks where their readers take them in: after norm and nonlinearity.

A hook only sums up what was asked for, per channel or feature, in float32; nothing of the batch is kept. Passes without
gradients (evaluation) are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rekindle.core.errors import PlanError
from rekindle.graph.export import as_call, at_rest
from rekindle.graph.unit_graph import Group, Slot, owner_of
from rekindle.observe.distributed import average

Quantity = Literal["magnitude", "mean", "fired"]


@dataclass(eq=False)
class Place:
    """Where the units of a group are seen.

    Args:
        group: Name of the group.
        module: Path of the reader.
        index: Long tensor [units, repeat]: which channels or features of the reader's input are a unit's.
        features: How many there are.
        channels_first: Whether they are in the first dimension after the batch (a convolution) or in the last.
        spatial: Number of dimensions after the channels, of a convolution.
    """

    group: str
    module: str
    index: Tensor
    features: int
    channels_first: bool
    spatial: int = 0
    sums: dict[Quantity, Tensor] = field(default_factory=dict)
    count: int = 0

    def dimension(self, x: Tensor) -> int:
        """Return the dimension of the features."""
        return x.dim() - 1 - self.spatial if self.channels_first else x.dim() - 1

    def add(self, x: Tensor, wanted: Iterable[Quantity]) -> None:
        """Take in what the reader is given."""
        feature = self.dimension(x)
        others = [d for d in range(x.dim()) if d != feature]
        wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
        for quantity in wanted:
            if not others:
                value = x.abs() if quantity != "mean" else x
            elif quantity == "mean":
                value = x.sum(dim=others, dtype=wide)
            else:
                order = 1 if quantity == "magnitude" else float("inf")
                value = torch.linalg.vector_norm(x, order, dim=others, dtype=wide)
            old = self.sums.get(quantity)
            if old is None:
                self.sums[quantity] = value
            else:
                torch.maximum(old, value, out=old) if quantity == "fired" else old.add_(value)
        self.count += x.numel() // self.features

    def clear(self) -> None:
        """Forget what was seen."""
        self.sums.clear()
        self.count = 0


class Watch:
    """Sees the activations of chosen groups while the user's own loop trains.

    Attributes:
        places: By group.
        unseen: Groups that cannot be seen, with the reason.
        active: Whether the coming passes are counted; a hook that is not active returns at once.
    """

    def __init__(self, model: nn.Module, groups: Sequence[Group], quantities: Iterable[Quantity], example: Any) -> None:
        """Find the places by running the model once on the example; hooks stay until `close`."""
        self.quantities: tuple[Quantity, ...] = tuple(dict.fromkeys(quantities))
        self.places, self.unseen = find_places(model, groups, example)
        self.active = True
        by_module: dict[str, list[Place]] = {}
        for place in self.places.values():
            by_module.setdefault(place.module, []).append(place)
        self._handles = [
            model.get_submodule(path).register_forward_pre_hook(self._hook(places))
            for path, places in by_module.items()
        ]

    def _hook(self, places: Sequence[Place]) -> Any:
        @torch.compiler.disable
        def look(module: nn.Module, args: tuple[Any, ...]) -> None:
            if self.active and torch.is_grad_enabled() and args and isinstance(args[0], Tensor):
                x = args[0].detach()
                for place in places:
                    place.add(x, self.quantities)

        return look

    def seen(self, quantity: Quantity) -> dict[str, Tensor]:
        """Return a quantity per unit by group, since the last `clear`, over all processes: a mean, or the largest |a|.

        Raises:
            PlanError: Nothing passed the hooks.
        """
        places = [place for place in self.places.values() if place.count]
        if self.places and not places:
            raise PlanError(
                expected="a forward pass with gradients since the last step, through the model that the Keeper watches",
                got="none",
                fix="call keeper.step() once after each optimizer.step(), train the model that the Keeper was given, "
                "and create the Keeper before the first call of a compiled model",
            )
        with torch.no_grad():
            found = {place.group: _per_unit(place, quantity) for place in places}
            return average(found, largest=quantity == "fired")

    def clear(self) -> None:
        """Forget what was seen."""
        for place in self.places.values():
            place.clear()

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _per_unit(place: Place, quantity: Quantity) -> Tensor:
    values = place.sums[quantity][place.index.to(place.sums[quantity].device)]
    return values.amax(1) if quantity == "fired" else values.mean(1) / place.count


def find_places(model: nn.Module, groups: Sequence[Group], example: Any) -> tuple[dict[str, Place], dict[str, str]]:
    """Return where groups can be seen, and the reasons for those that cannot; the model is run once, at rest."""
    candidates = {
        group.name: [place for slot in group.outgoing for place in _place(model, group, slot)] for group in groups
    }
    inputs: dict[str, list[Tensor]] = {}

    def note(path: str) -> Any:
        def look(module: nn.Module, args: tuple[Any, ...]) -> None:
            inputs.setdefault(path, []).extend(arg for arg in args[:1] if isinstance(arg, Tensor))

        return look

    paths = {place.module for places in candidates.values() for place in places}
    handles = [model.get_submodule(path).register_forward_pre_hook(note(path)) for path in paths]
    try:
        args, kwargs = as_call(example)
        with at_rest(model), torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    found, unseen = {}, {}
    for name, places in candidates.items():
        fitting = [p for p in places if p.module in inputs and all(_fits(p, x) for x in inputs[p.module])]
        if fitting:
            found[name] = fitting[0]
        else:
            unseen[name] = "no module that reads it is called with its activation as the input"
    return found, unseen


def _place(model: nn.Module, group: Group, slot: Slot) -> list[Place]:
    if slot.kind != "weight" or not slot.module:
        return []
    module = model.get_submodule(slot.module)
    tensor = model.get_parameter(slot.tensor)
    own = any(each is tensor for each in module.parameters(recurse=False)) or owner_of(slot.tensor) == slot.module
    if not own:  # used from outside, as MultiheadAttention does: what the module is given is not what the weight reads
        return []
    where = slot.where
    features = 1
    for dim in where.dims:
        features *= where.view[dim]
    spatial = len(module.kernel_size) if isinstance(module, _ConvNd) else 0
    return [Place(group.name, slot.module, where.index, features, isinstance(module, _ConvNd), spatial)]


def _fits(place: Place, x: Tensor) -> bool:
    return x.is_floating_point() and x.dim() > place.spatial and x.shape[place.dimension(x)] == place.features
