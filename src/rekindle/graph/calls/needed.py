"""Which nodes of an exported program a result needs, also inside the subgraphs that autocast and no_grad make.

Under autocast `torch.export` puts the whole forward pass into one operation with a graph inside, which gives logits and
loss together: seen from outside, each needs all of it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

from torch import fx

INLINED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}  # operation: position of its subgraph


def needed(results: Iterable[fx.Node]) -> frozenset[fx.Node]:
    """Return the nodes that results depend on, themselves included, in all graphs."""
    waiting, found = list(results), set[fx.Node]()
    given: dict[fx.Node, Any] = {}  # to the inputs of subgraphs
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        before = _given_out(node, given) if node.op == "call_function" else None
        if before is None:
            before = [given[node]] if node in given else node.all_input_nodes
        else:
            found.add(_holder(node))
        waiting += [each for each in before if isinstance(each, fx.Node)]
    return frozenset(found)


def _given_out(node: fx.Node, given: dict[fx.Node, Any]) -> list[Any] | None:
    """Return what a node stands for inside a subgraph: one of its results, or all; None for an ordinary operation."""
    holder = _holder(node)
    inner = subgraph(holder)
    if inner is None:
        return None
    at = INLINED[op_name(holder)]
    inputs = [each for each in inner.graph.nodes if each.op == "placeholder"]
    given |= dict(zip(inputs, holder.args[at + 1 :], strict=False))
    (end,) = [each for each in inner.graph.nodes if each.op == "output"]
    results: Any = end.args[0]
    place: Any = node.args[1] if holder is not node else slice(None)
    chosen = results[place] if isinstance(results, (tuple, list)) else results
    return [holder.args[at], *(chosen if isinstance(chosen, (tuple, list)) else [chosen])]


def _holder(node: fx.Node) -> fx.Node:
    """Return the operation of which a node takes one result, or the node itself."""
    whole = node.args[0] if node.target is operator.getitem else node
    return whole if isinstance(whole, fx.Node) else node


def subgraph(node: fx.Node) -> fx.GraphModule | None:
    """Return the graph inside an operation, which runs as if it stood in its place; None for an ordinary one."""
    if node.op != "call_function" or op_name(node) not in INLINED:
        return None
    holder: Any = node.args[INLINED[op_name(node)]]
    found: fx.GraphModule = operator.attrgetter(str(holder.target))(node.graph.owning_module)
    return found


def nodes_in(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the nodes of a graph, and of the subgraphs in it."""
    for node in graph.nodes:
        yield node
        inner = subgraph(node)
        if inner is not None:
            yield from nodes_in(inner.graph)


def op_name(node: fx.Node) -> str:
    """Return the name of an operation, without its overload."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is not None:
        return str(packet.__name__)
    return str(getattr(node.target, "__name__", node.target))
