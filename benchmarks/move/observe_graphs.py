"""What a trace finds in every zoo model: weights, groups, what is not covered, laws, and how sizes hang together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lookup import find, part
from recording import Seen
from subjects import printed

import rekindle as rk


def observe(seen: Seen, room: Path) -> None:
    """Trace all models of the zoo, and those that are not understood."""
    for member in rk.testing.ZOO.values():
        graph = rk.trace(member.build(), member.example())
        note_graph(seen, f"trace/{member.name}", graph)
        seen.note(f"scaling/{member.name}", scaling(graph))
        seen.attempt(f"verify/{member.name}", lambda: _verify(seen, member, graph))  # noqa: B023
        _without_example(seen, member)
    seen.note("trace/mlp/as it is", str(rk.trace(rk.testing.ZOO["mlp"].build(), rk.testing.ZOO["mlp"].example())))
    for name, member in part(rk.testing, "NOT_UNDERSTOOD").items():
        seen.attempt(f"strict/{name}", lambda: rk.trace(member.build(), member.example()))  # noqa: B023
        note_graph(seen, f"lenient/{name}", rk.trace(member.build(), member.example(), strict=False))
    seen.attempt("no tensor", lambda: rk.trace(torch.nn.Linear(3, 2), "text"))
    seen.attempt("wrong shape", lambda: rk.trace(torch.nn.Linear(3, 2), torch.zeros(1, 5)))


def note_graph(seen: Seen, key: str, graph: Any) -> None:
    """Note a graph with all of its parts, fresh draws of its tensors, and what it prints."""
    seen.note(key, graph)
    seen.note(f"{key}/printed", printed(graph))
    shapes = part(graph, "parameters")
    seen.note(f"{key}/fresh", {name: part(graph, "fresh")(name, shape, 7, "move") for name, shape in shapes.items()})
    for weight in graph.weights:
        seen.note(f"{key}/sizes of {weight.name}", [part(weight, name) for name in ("sizes", "fan_in", "kernel")])


def scaling(graph: Any) -> Any:
    """Return the solution of what tensors may be multiplied by."""
    wishes = find("rekindle.graph.scaling:wishes_of")(graph)
    return find("rekindle.graph.scaling:prepare")(graph, wishes, fixed=[wishes[-1].tensor] if len(wishes) > 3 else [])


def _verify(seen: Seen, member: Any, graph: Any) -> None:
    found = graph.verify(member.build(), member.example(), seed=1)
    seen.note(f"verify/{member.name}", found)
    seen.note(f"verify/{member.name}/printed", printed(found))


def _without_example(seen: Seen, member: Any) -> None:
    """Read a model and a state dict without running anything."""
    model = member.build()
    seen.note(f"scan/{member.name}", find("rekindle.graph.scan:scan")(model))
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    seen.note(f"names/{member.name}", find("rekindle.graph.scan_names:scan_names")(shapes))
