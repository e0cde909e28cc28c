"""What of a model stays in a treatment: what is frozen, what holds no plain floats, and what hangs on either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.edits.transaction import Target
from rekindle.graph import UnitGraph
from rekindle.graph.modules import parameters_of
from rekindle.graph.names import is_statistic

FROZEN = "frozen (requires_grad=False); frozen=True treats it"


def frozen_in(model: Target) -> frozenset[str]:
    """Return the names of a model's frozen parameters, and of statistics that belong to frozen layers.

    A state dict does not tell.
    """
    if not isinstance(model, nn.Module):
        return frozenset()
    still = {name for name, parameter in parameters_of(model).items() if not parameter.requires_grad}
    layers = {name.rpartition(".")[0] for name in still}
    trained = {name.rpartition(".")[0] for name, p in parameters_of(model).items() if p.requires_grad}
    kept = [name for name, _ in model.named_buffers() if name.rpartition(".")[0] in layers - trained]
    return frozenset(still) | frozenset(name for name in kept if is_statistic(name))


def kept_in(model: Target, graph: UnitGraph, *, frozen: bool) -> dict[str, str]:
    """Return the tensors that stay as they are, with the reason: frozen ones, adapters, and what holds no plain floats.

    Args:
        model: The model or its state dict.
        graph: Its graph.
        frozen: Whether frozen ones are to be treated too.
    """
    still = frozen_in(model) if not frozen else frozenset()
    return {**dict.fromkeys(sorted(still), FROZEN), **graph.adapters, **graph.not_plain}


def without_kept(content: Edits, graph: UnitGraph, kept: Mapping[str, str]) -> Edits:
    """Return a plan without edits of tensors that stay, and of those that make sense only together with one."""
    if not kept:
        return content
    bound, first = _bound(graph), {**graph.adapters, **graph.not_plain}
    edits: list[Edit] = []
    skips: dict[Skip, None] = {}  # what would have been edited comes first: it is the reason when nothing is left
    for edit in content.edits:
        others = {*bound.get(edit.tensor, ())} & kept.keys() | set(edit.reads) & graph.not_plain.keys()
        if edit.tensor in kept:
            skips[Skip(edit.tensor, kept[edit.tensor])] = None
        elif others:
            skips[Skip(edit.tensor, _together(min(others), kept))] = None
        else:
            edits.append(edit)
    skips |= dict.fromkeys(_retold(skip, first) for skip in content.skips)
    return replace(content, edits=tuple(edits), skips=tuple(skips))


def _retold(skip: Skip, first: Mapping[str, str]) -> Skip:
    """Return a skip with the reason that goes before all others: nothing to compute with, or half of a product."""
    return Skip(skip.tensor, first.get(skip.tensor.partition("[")[0], skip.reason))


def _together(other: str, kept: Mapping[str, str]) -> str:
    return f"goes with {other}, which is frozen" if kept[other] == FROZEN else f"goes with {other} ({kept[other]})"


def _bound(graph: UnitGraph) -> dict[str, set[str]]:
    """Return for each tensor those that are edited with it or not at all: direction and gain of weight_norm."""
    bound: dict[str, set[str]] = {}
    for gain, (direction, _) in graph.gains.items():
        bound.setdefault(gain, set()).add(direction)
        bound.setdefault(direction, set()).add(gain)
    return bound


def accounted(content: Edits, graph: UnitGraph, kept: Mapping[str, str], copied: set[str], key: str) -> Edits:
    """Return a plan that says something about every parameter: it is edited, or left alone with a reason."""
    told = {edit.tensor for edit in content.edits} | {skip.tensor.partition("[")[0] for skip in content.skips}
    told |= {name for operation in content.surgery for name in operation.freezes} | copied
    silent = [name for name in (*graph.parameters, *graph.not_plain) if name not in told]
    skips = tuple(Skip(name, _why(name, graph, kept, key)) for name in dict.fromkeys(silent))
    return replace(content, skips=content.skips + skips)


def _why(name: str, graph: UnitGraph, kept: Mapping[str, str], key: str) -> str:
    if name in kept:
        return kept[name]
    if name in graph.uncovered:
        return graph.uncovered[name]
    if len(graph.parameters[name]) < 2:
        return f"a vector (bias, scale or shift), which {key} leaves alone"
    known = (
        "not a weight that" if graph.traced or graph.weights_of(name) else "no weight of a layer that is known, which"
    )
    return f"{known} {key} treats with these settings"
