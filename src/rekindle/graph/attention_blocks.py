"""Which weights stand inside an attention block: between two visits of the residual stream that queries read."""

from __future__ import annotations

from collections import defaultdict

from rekindle.graph.unit_graph import UnitGraph


def inside_attention_blocks(graph: UnitGraph) -> frozenset[str]:
    """Return the names of weights on a way from an attention's stream back into it: q, k, v, o and the block's MLP.

    Patch embedding and head are outside: the one does not read the stream, the other does not return to it.
    """
    reads, writes = _reads(graph), _writes(graph)
    weights = [weight for weight in graph.weights if weight.role != "embedding"]
    after: dict[str, set[str]] = defaultdict(set)
    before: dict[str, set[str]] = defaultdict(set)
    for weight in weights:
        for source in reads[weight.tensor]:
            for target in writes[weight.tensor]:
                after[source].add(target)
                before[target].add(source)
    inside: set[str] = set()
    queries = {weight.tensor for weight in weights if weight.role == "q"}
    for stream in sorted(set().union(*(reads[tensor] for tensor in queries))):
        block = _reach(stream, after) & _reach(stream, before) | {stream}
        inside |= {weight.name for weight in weights if reads[weight.tensor] & block and writes[weight.tensor] & block}
    return frozenset(inside | {weight.name for weight in graph.weights if weight.role in ("q", "k", "v", "o")})


def _reads(graph: UnitGraph) -> dict[str, set[str]]:
    """Return for each tensor the groups that it reads; keys read queries, but that is no way through."""
    found: dict[str, set[str]] = defaultdict(set)
    for group in graph.groups:
        for slot in group.outgoing if group.kind != "score" else ():
            found[slot.tensor].add(group.name)
    return found


def _writes(graph: UnitGraph) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for group in graph.groups:
        for slot in group.incoming:
            found[slot.tensor].add(group.name)
    return found


def _reach(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Return what can be reached without passing through the start again."""
    found: set[str] = set()
    todo = list(edges[start])
    while todo:
        name = todo.pop()
        if name not in found and name != start:
            found.add(name)
            todo += edges[name]
    return found
