"""What a model hands back: a tensor, or something that holds logits, perhaps a loss, and more.

The one place that knows `ModelOutput` of transformers and what looks like it: attributes or entries of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from rekindle.graph.calls.containers import tensors_in
from rekindle.graph.calls.needed import needed, nodes_in


def logits_of(output: Any) -> Tensor | None:
    """Return the logits of a model's output, or None where there are none.

    They are the output itself if it is a tensor, its `logits` (an attribute, or an entry of a mapping), or the first of
    a tuple that is not the loss.

    Example:
        >>> logits_of({"loss": torch.tensor(0.5), "logits": torch.zeros(2, 3)}).shape
        torch.Size([2, 3])
    """
    found = output if isinstance(output, Tensor) else entry(output, "logits")
    if found is None and type(output) in (tuple, list):
        loss = loss_in(output)
        found = next((each for each in output if each is not loss), None)
    return found if isinstance(found, Tensor) else None


def loss_in(output: Any) -> Tensor | None:
    """Return the loss that a model has computed itself, or None.

    It is the `loss` of the output (an attribute, or an entry of a mapping), or the one number beside other tensors in a
    plain tuple, as (loss, logits) and (logits, loss).

    Example:
        >>> float(loss_in((torch.zeros(2, 3), torch.tensor(0.5))))
        0.5
    """
    found = entry(output, "loss")
    if found is None and type(output) in (tuple, list):
        numbers = [each for each in output if _is_number(each)]
        found = numbers[0] if len(numbers) == 1 and len(output) > 1 else None
    return found if _is_number(found) else None


def entry(output: Any, name: str) -> Any:
    """Return what an output holds under a name, as an entry or as an attribute; None without."""
    if isinstance(output, Mapping):
        return output.get(name)
    return None if isinstance(output, Tensor) else getattr(output, name, None)


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and value.dim() < 2 and value.is_floating_point()


def beside_loss(output: Any) -> list[Tensor]:
    """Return all tensors of an output but the loss, in order; the loss where there is nothing else."""
    loss = loss_in(output)
    every = tensors_in(output)
    return [tensor for tensor in every if tensor is not loss] or every


def loss_alone(program: torch.export.ExportedProgram) -> frozenset[fx.Node]:
    """Return the nodes that the loss in the output needs and nothing else; none where there is no loss.

    Inputs are among them: `labels`, where they are for the loss alone. Where the loss is all that the model gives, it
    is an output like any other. What writes in place counts as needed elsewhere.
    """
    (end,) = [node for node in program.graph.nodes if node.op == "output"]
    spec = program.call_spec.out_spec
    if spec is None or len(end.args[0]) != spec.num_leaves:
        return frozenset()
    held = [each.meta.get("val") if isinstance(each, fx.Node) else each for each in end.args[0]]
    loss = loss_in(pytree.tree_unflatten(held, spec))
    results = [each for each in end.args[0] if isinstance(each, fx.Node)]
    others = [node for node in results if node.meta.get("val") is not loss]
    if loss is None or not others:
        return frozenset()
    writes = [node for node in nodes_in(program.graph) if _writes_in_place(node)]
    return needed([node for node in results if node not in others]) - needed([*others, *writes])


def _writes_in_place(node: fx.Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def note_of(program: torch.export.ExportedProgram, passed: frozenset[fx.Node]) -> str:
    """Return what to tell of nodes that are passed over, see `loss_alone`: which inputs were for the loss alone."""
    kind = torch.export.graph_signature.InputKind
    inputs = [s.arg.name for s in program.graph_signature.input_specs if s.kind == kind.USER_INPUT]
    names = {node.name for node in passed if node.graph is program.graph}
    alone = [name for name in inputs if name in names]
    told = f", and {', '.join(alone)} of the example, on which only it depends" if alone else ""
    return f"left out: the loss in the output{told}"
