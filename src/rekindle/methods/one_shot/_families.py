"""Which weights FIRE treats in which family of networks: the paper's C and 4, and the code published with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.errors import PlanError
from rekindle.graph import UnitGraph, Weight
from rekindle.graph.names import matches
from rekindle.graph.regions import MatrixView
from rekindle.graph.scan import scan
from rekindle.methods.one_shot._fresh import UNKNOWN, Draw, fresh_values
from rekindle.observe import Evidence

# The two ways of the setting `attention`, and the presets; "paper" is "cnn".
Family = Literal["qk", "all", "cnn", "vit", "gpt", "dqn", "paper"]
COMPUTED = "its layer uses a value computed from it, which cannot be set"


def reason_to_leave(weight: Weight, graph: UnitGraph, family: Family, tied: bool = False) -> str:
    """Return why a weight is not made an isometry in a family, or nothing; `tied` is the setting of fire."""
    if weight.computed:
        return COMPUTED
    if weight.role == "embedding" and not (tied and weight.tied):
        hint = "; tied=True treats it, as the head" if family == "all" else ""
        return "an embedding" + (f", tied to the head{hint}" if weight.tied else "")
    if family in ("qk", "vit") and weight.role not in ("q", "k"):
        if family == "vit":
            return "neither query nor key, and preset='vit' treats nothing else"
        if has_attention(graph):
            return "neither query nor key; in a model with attention these alone are treated, unless attention='all'"
    return ""


def has_attention(graph: UnitGraph) -> bool:
    """Tell whether a graph has queries."""
    return any(weight.role == "q" for weight in graph.weights)


def is_linear(weight: Weight) -> bool:
    """Tell a weight of a linear layer from one of a convolution, and from an embedding."""
    return len(weight.shape) == 2 and weight.role != "embedding"


def as_head(weight: Weight) -> Weight:
    """Return an embedding [words, features] that is tied to the head as the head sees it: words are outputs."""
    return replace(weight, role="head", view=MatrixView(weight.shape, (0,), (1,)))


def refuse_unknown_roles(graph: UnitGraph, evidence: Evidence, family: Family) -> None:
    """Refuse a graph that does not tell queries and keys from other weights, where a family is about them.

    Raises:
        PlanError: The model was not traced, and names leave a doubt; or its attention was not understood.
    """
    if family not in ("qk", "vit"):
        return
    if graph.traced and graph.not_understood and not has_attention(graph) and evidence.model is not None:
        named = scan(evidence.model)
        if has_attention(named) or named.unclear:
            raise PlanError(
                expected="a model whose queries and keys are seen",
                got=f"attention by the names of its layers, and a part that was not understood: "
                f"{graph.not_understood[0]}",
                fix="name what fire is to leave alone with skip= and say attention='all'",
            )
    if graph.traced and not graph.roles_known:
        raise PlanError(
            expected="a model whose queries and keys are seen",
            got=f"products of two activations in, or after, a part that was not understood: {graph.not_understood[0]}",
            fix="say attention='all' (or preset='cnn') to treat every weight alike, and name what fire is to leave "
            "alone with skip=",
        )
    if not graph.traced and not graph.roles_known:
        unclear = "".join(f"; {name}: {why}" for name, why in list(graph.unclear.items())[:1])
        raise PlanError(
            expected="example= for fire, to tell queries and keys from other weights",
            got=f"no example{unclear}",
            fix="pass example= with an input of your model, or attention='all' (or preset='cnn') to treat every "
            "weight alike",
        )


def refuse_without_tied_head(graph: UnitGraph, family: Family) -> None:
    """Refuse a graph in which tied=True would change nothing.

    Raises:
        PlanError: No embedding is tied to the head, or the head is not among the weights that are treated.
    """
    if not any(weight.role == "embedding" and weight.tied for weight in graph.weights):
        raise PlanError(
            expected="an embedding that is tied to the head, for fire with tied=True",
            got="a model without: its embedding and its head, if it has them, are two tensors",
            fix="leave out tied; attention='all' treats a head of its own",
        )
    if family == "qk" and has_attention(graph):
        raise PlanError(
            expected="attention='all' for fire with tied=True: in a model with attention the head is treated with all "
            "other weights or not at all",
            got="attention='qk', which treats queries and keys and nothing else",
            fix="add attention='all', or leave out tied",
        )


def refuse_unclear(weight: Weight, graph: UnitGraph) -> None:
    """Refuse a weight that may hold several projections, which must not be made one isometry.

    Raises:
        PlanError: It is such a weight.
    """
    if weight.tensor in graph.unclear:
        raise PlanError(
            expected="weights that are one matrix each, or a fused projection whose parts are known",
            got=f"{weight.tensor}: {graph.unclear[weight.tensor]}",
            fix=f"pass example= with an input of your model, so that its parts are seen; or skip=('{weight.tensor}',) "
            "to leave it alone",
        )


def redraw_linear(
    graph: UnitGraph, evidence: Evidence, seed: int, *, skip: tuple[str, ...], blend: float, key: str
) -> Edits:
    """Return edits that draw linear layers afresh, weights and biases, as the published code does for DQN."""
    edits, skips = [], []
    for name in dict.fromkeys(name for weight in graph.weights if is_linear(weight) for name in _layer(weight, graph)):
        if matches(name, skip):
            skips.append(Skip(name, "named in skip"))
        elif any(weight.computed for weight in graph.weights_of(name)):
            skips.append(Skip(name, COMPUTED))
        elif (draw := fresh_values(graph, evidence, name, graph.parameters[name], seed, key, "reference")) is None:
            skips.append(Skip(name, UNKNOWN))
        else:
            edits.append(Edit(name, _toward(draw, blend), key))
    return Edits(tuple(edits), tuple(skips))


def _layer(weight: Weight, graph: UnitGraph) -> Iterator[str]:
    """Yield the tensors of a weight's layer: the weight, its gain under weight_norm, its bias."""
    yield weight.tensor
    if weight.gain is not None:
        yield weight.gain[0]
    for group in graph.groups:
        if any(slot.tensor == weight.tensor for slot in group.incoming):
            yield from (slot.tensor for slot in group.incoming if slot.kind == "bias" and slot.module == weight.module)
    bias = f"{weight.module}.bias" if weight.module else "bias"
    if bias in graph.parameters:
        yield bias


def _toward(draw: Draw, blend: float) -> Callable[[Tensor], Tensor]:
    return lambda old: torch.lerp(old, draw().to(old), blend) if blend < 1 else draw().to(old)
