"""What a method keeps from step to step inside a training loop, and what it is given to begin with.

A per-step method or recycler is frozen settings, as a one-shot method is; its `init(context)` returns a `MethodState`
that holds what changes from step to step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.edits.edit import Edits
from rekindle.edits.update import Update
from rekindle.errors import KeeperError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import parameters_of, tensors_of


@dataclass(frozen=True, eq=False)
class MethodContext:
    """Where a method works.

    Attributes:
        model: The live model, without wrappers (compiled, distributed).
        graph: Its unit graph; `graph.traced` is False when no example was given.
        tensors: Live parameters and buffers by canonical name.
        optimizers: All optimizers, possibly none; others take their places when the Keeper is bound anew.
        reference: Initial weights by name: those at the start of the Keeper unless the user gave others. To be read in
            `init`: a copy is made when a tensor is first asked for, so that later it is one of later weights.
        seed: Seed of every draw, together with tensor, reason and step.
        watch: What is seen of activations (`rekindle.observe.activations.Watch`), None if no method asked for it.
        frozen: Whether parameters that take no gradients are treated too.
    """

    model: nn.Module
    graph: UnitGraph
    tensors: Mapping[str, Tensor]
    optimizers: Sequence[Optimizer]
    reference: Mapping[str, Tensor]
    seed: int
    watch: Any = None
    frozen: bool = False

    def trained(self) -> dict[str, Tensor]:
        """Return the parameters that take gradients, by name; with `frozen` all of them that hold plain floats.

        Adapters are none of them.
        """
        still = self.still()
        return {name: self.tensors[name] for name in parameters_of(self.model) if name not in still}

    def still(self) -> frozenset[str]:
        """Return the names of the parameters that stay: frozen ones, adapters, and those that hold no plain floats."""
        named = parameters_of(self.model).items()
        still = frozenset(name for name, p in named if not p.requires_grad and not self.frozen)
        return still | self.graph.not_plain.keys() | self.graph.adapters.keys()


class StartingWeights(Mapping[str, Tensor]):
    """Weights as they are when they are first asked for, which is when methods start; only what is asked is copied."""

    def __init__(self, model: nn.Module, before: StartingWeights | None = None) -> None:
        """Take over what a tensor was at an earlier start, where it was asked for and is still in the model."""
        self._tensors = tensors_of(model)
        self._copies: dict[Tensor, Tensor] = dict(before._copies) if before is not None else {}

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        if tensor not in self._copies:
            self._copies[tensor] = tensor.detach().clone()
        return self._copies[tensor]

    def rebase(self) -> None:
        """Take the tensors that were asked for as they are now."""
        self._copies = {tensor: tensor.detach().clone() for tensor in self._copies}

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class MethodState:
    """What a per-step method or recycler keeps; every default does nothing, a method overrides what it does."""

    def penalty(self) -> Tensor | None:
        """Return a term for the loss, or None."""
        return None

    def watches(self, step: int) -> bool:
        """Tell whether activations of the coming step must be seen."""
        return False

    def after_step(self, step: int) -> Iterable[Update]:
        """Return what is to be written after the optimizer's step number `step` (from 1)."""
        return ()

    def choose(self, step: int) -> Mapping[str, Tensor]:
        """Return the units to be recycled: name of the group to numbers of its units. Recyclers only."""
        return {}

    def recycled(self, chosen: Mapping[str, Tensor]) -> None:
        """Take note of the units that were recycled: those that were chosen and not held back. Recyclers only."""

    def edits(self, step: int) -> Edits | None:
        """Return edits that go through the transaction, with moments cleared where they are; None for nothing."""
        return None

    def rebase(self) -> None:
        """Take the weights as they are now for the new start, if the method has one."""

    def state_dict(self) -> dict[str, Any]:
        """Return what must be saved to go on bit-equal: tensors and plain data."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""


def no_gradients() -> KeeperError:
    """Return the error of a method that looks at gradients and finds none."""
    return KeeperError(
        expected="gradients of the step that was just taken",
        got="none: .grad of every weight is None",
        fix="call keeper.step() after optimizer.step() and before optimizer.zero_grad()",
    )
