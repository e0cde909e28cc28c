"""The plain proof of a group: the whole model is run for each trial, and only its output is looked at.

It is slow for deep models, and does not find a forgotten reader that only writes into the units it reads. It is what
remains where a call cannot be followed operation by operation, and what the quicker proof is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.graph.calls.containers import map_tensors
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.calls.model_output import beside_loss
from rekindle.graph.export import at_rest
from rekindle.graph.groups import Group
from rekindle.graph.modules import call_with, tensors_of
from rekindle.graph.proof.disturbance import disturbed, silenced
from rekindle.graph.proof.refutation import BREAKS, SEEN, SILENT, read_elsewhere
from rekindle.seeds import global_seed


class WholeTrial:
    """Tries groups on the whole model.

    Args:
        model: The model, without wrappers.
        example: What it is called with.
        gains: For each gain of weight_norm its direction and dimension.
    """

    def __init__(self, model: nn.Module, example: Any, gains: Mapping[str, tuple[str, int]]) -> None:
        self.model, self.example, self.gains = model, example, gains
        for self.wide in (True, False):  # float64 shows what float32 would round away; not every model can run in it
            self.tensors = copies_of(model, self.wide)
            try:
                self.start = self._run({})
                return
            except (RuntimeError, TypeError):
                if not self.wide:
                    raise

    def is_seen(self, group: Group, seed: int) -> bool:
        """Tell whether the units of a group have an effect on the output."""
        changes = (
            _change(self.start, self._run(disturbed(self.tensors, group.incoming, {}, (), seed, size)))
            for size in (1.0, 10.0)
        )
        return any(not change <= SEEN for change in changes)

    def refute(self, group: Group, closure: Sequence[Group], seed: int) -> str | None:
        """Try to see the units of a group with their outgoing slots at zero; return why it could not be tried.

        Raises:
            GraphError: They are seen.
        """
        outgoing = [slot for g in closure for slot in g.outgoing]
        silent = silenced(self.tensors, outgoing, self.gains)
        before = self._run(silent)
        after = self._run(disturbed(self.tensors, (*group.incoming, *group.norms), silent, outgoing, seed))
        if not bool(torch.isfinite(before).all()):
            return BREAKS
        if not _change(before, after) <= SILENT:
            raise read_elsewhere(group, f"a relative change of {_change(before, after):.3g} at the model's output")
        return None

    def _run(self, replaced: Mapping[str, Tensor]) -> Tensor:
        results = call_at_rest(
            self.model, {**self.tensors, **replaced}, cast(as_call(self.model, self.example), self.wide)
        )
        return torch.cat([x.double().reshape(-1) for x in results])


def call_at_rest(
    model: nn.Module, tensors: Mapping[str, Tensor], call: tuple[tuple[Any, ...], Mapping[str, Any]]
) -> list[Tensor]:
    """Run a model with tensors of its own or others, at rest and with one seed; return its outputs beside the loss.

    Outputs of whole numbers (actions, classes) count where there are no others.
    """
    with torch.no_grad(), at_rest(model), global_seed(0, "forward", "verify"):
        result = call_with(model, tensors, *call)
    every = beside_loss(result)
    return [x for x in every if x.is_floating_point()] or every


def copies_of(model: nn.Module, wide: bool) -> dict[str, Tensor]:
    """Return copies of a model's tensors, in float64 if they are to be wide."""
    return {name: cast(tensor.detach().clone(), wide) for name, tensor in tensors_of(model).items()}


def cast(item: Any, wide: bool) -> Any:
    """Return tensors of floats in a nested structure as float64, if they are to be wide."""
    return map_tensors(lambda x: x.double() if wide and x.is_floating_point() else x, item)


def _change(before: Tensor, after: Tensor) -> float:
    scale = float(before.abs().max()) + 1e-3
    return float((after - before).abs().max()) / scale
