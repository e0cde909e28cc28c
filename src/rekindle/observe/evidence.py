"""What was observed beside the weights themselves. Methods say what they need; asking for what is missing raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.errors import PlanError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import tensors_of
from rekindle.graph.plain import is_counter, shapes_of, valueless, why_not_plain
from rekindle.graph.unwrap import bare, refuse_sharded
from rekindle.observe.batches import inputs_of
from rekindle.observe.gradients import Data, Gradients, Model, average_gradients
from rekindle.observe.losses import HOW, Loss
from rekindle.observe.visit import batches_of, device_of, no_values
from rekindle.seeds import global_seed

Reference = nn.Module | Mapping[str, Tensor] | Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that a method may look at.

    Attributes:
        reference: Initial weights by name, or None.
        observed: Gives the averaged gradients for an alpha, or None without data. The pass over the data is made when a
            method first asks, once for each alpha, so that nothing is run for methods that do not.
        model: The live model, or None where there is only a state dict; to be run, not to be written.
        data: The batches.
        example: Input for the model.
        frozen: Names of tensors that stay, for methods whose edits hang together; all others need not look.
        not_plain: Those of them that hold no plain floats. Of them no initial value is needed.
    """

    reference: Mapping[str, Tensor] | None = None
    observed: Callable[[float], Gradients] | None = None
    model: nn.Module | None = None
    data: Data | None = None
    example: Any = None
    frozen: frozenset[str] = frozenset()
    not_plain: frozenset[str] = frozenset()

    def initial(self, tensor: str, like: tuple[int, ...], method: str) -> Tensor:
        """Return the initial value of a tensor; of one that stays as it is whatever is planned, a stand-in without any.

        Raises:
            PlanError: There is no reference, or it does not have this tensor in this shape, or not as plain floats.
        """
        if tensor in self.not_plain:
            return torch.empty(like, device="meta")
        if self.reference is None:
            raise PlanError(
                expected=f"initial weights for {method}",
                got="none",
                fix="pass reference=: a state dict saved at the start, a fresh model, or a function that builds one",
            )
        found = self.reference.get(tensor)
        shape = None if found is None else shapes_of({tensor: found})[tensor]
        if found is None or shape != like:
            raise PlanError(
                expected=f"a reference with {tensor} of shape {like}",
                got="none of that name" if found is None else f"shape {shape}",
                fix="take the reference from the same architecture, under the same names",
            )
        why = "on the meta device, without values" if found.is_meta else why_not_plain(found)
        if why and found.numel() and not is_counter(tensor, found):
            raise PlanError(
                expected=f"a reference with plain floats in {tensor}",
                got=why,
                fix="take the reference from the weights before they were converted, with their values",
            )
        return found.detach()

    def gradients(self, method: str, alpha: float) -> Gradients:
        """Return the negative gradient averaged over the data, the newest batch counting `alpha`.

        Raises:
            PlanError: There is no data, or it and the loss do not fit; see `average_gradients`.
        """
        if self.observed is None:
            raise PlanError(
                expected=f"data for {method}, which looks at gradients",
                got="none",
                fix="pass data=, an iterable of batches such as your DataLoader, and loss=, a function "
                f"(model, batch) -> scalar, as in {HOW}; loss= may be left out for (inputs, integer targets), and "
                "for dicts with labels of which the model computes its loss",
            )
        return self.observed(alpha)

    def live(self, method: str) -> tuple[nn.Module, Any]:
        """Return the model and one batch of inputs to run it on: the first of the data, else the example.

        Raises:
            PlanError: There is only a state dict, or neither data nor example.
        """
        if self.model is None or (self.data is None and self.example is None):
            raise PlanError(
                expected=f"a live model and a batch for {method}, which runs it",
                got="no model" if self.model is None else "neither data= nor example=",
                fix="pass the model itself, and data=, an iterable of batches, or example=, one batch of inputs",
            )
        if empty := valueless(tensors_of(self.model)):
            raise no_values(empty[0], method)
        if self.data is None:
            return self.model, self.example
        batch = next(batches_of(self.data, device_of(self.model.parameters()), method))
        return self.model, inputs_of(batch)


def gather(
    reference: Reference | None,
    seed: int,
    *,
    model: Model | None = None,
    graph: UnitGraph | None = None,
    data: Data | None = None,
    loss: Loss | None = None,
    example: Any = None,
) -> Evidence:
    """Collect the evidence that was given.

    Args:
        reference: A state dict, a model, or a function that builds a fresh model (called with its own seed).
        seed: Seed of that function's draws; torch's global generator is left as it was.
        model: The model that is run over the data, or its state dict.
        graph: Its graph.
        data: Batches; gone through when a method asks for gradients, not before.
        loss: Function (model, batch) -> scalar; see `average_gradients` for its default.
        example: Input for the model; the batch for methods that run it, where there is no data.
    """
    observed = None
    if data is not None and model is not None and graph is not None:
        observed = cache(lambda alpha: average_gradients(model, data, loss, alpha=alpha, graph=graph, seed=seed))
    live = bare(model) if isinstance(model, nn.Module) else None
    return Evidence(_initial(reference, seed), observed, live, data, example)


def _initial(reference: Reference | None, seed: int) -> Mapping[str, Tensor] | None:
    if isinstance(reference, Mapping):
        refuse_sharded(reference)
    if reference is None or isinstance(reference, Mapping):
        return reference
    if isinstance(reference, nn.Module):
        return _tensors(reference)
    if not callable(reference):
        raise PlanError(
            expected="reference: a state dict, a model, or a function that builds one",
            got=type(reference).__name__,
            fix="pass model.state_dict() as it was at the start, or the function that builds your model",
        )
    with global_seed(seed, "reference", "factory"):
        return _tensors(reference())


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return tensors_of(bare(model), remove_duplicate=False)
