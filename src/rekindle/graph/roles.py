"""From weights that met an activation to the graph's weights: one for each role within a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from rekindle.graph.trace_log import TraceLog, WeightUse
from rekindle.graph.weight import Weight, WeightRole

LETTERS: tuple[WeightRole, ...] = ("q", "k", "v")


@dataclass(frozen=True, eq=False)
class AttentionRoles:
    """What is tied to a query without a product is a query, and so for keys and values.

    Args:
        letter: For each label (the smallest of those tied to it) 0, or 1, 2, 3 for q, k, v.
        head: For each label the head that it belongs to.
    """

    letter: np.ndarray
    head: np.ndarray


def attention_roles(trace_log: TraceLog, apart: np.ndarray) -> AttentionRoles:
    """Return the roles that the products of attention gave; of several the first counts."""
    letter = np.zeros(trace_log.total, dtype=np.int64)
    head = np.zeros(trace_log.total, dtype=np.int64)
    for role, labels in trace_log.roles:
        found = apart[labels.numpy()]  # [heads, units]
        heads = np.repeat(np.arange(found.shape[0]), found.shape[1])[::-1]
        found = found.reshape(-1)[::-1]  # the last write wins, and the first is to count
        new = letter[found] == 0
        letter[found[new]] = 1 + LETTERS.index(role)
        head[found[new]] = heads[new]
    return AttentionRoles(letter, head)


def weights_of(
    trace_log: TraceLog,
    root: np.ndarray,
    apart: np.ndarray,
    parameters: Mapping[str, tuple[int, ...]],
    leaving: np.ndarray,
) -> tuple[Weight, ...]:
    """Return the graph's weights.

    Args:
        trace_log: What the rules wrote down.
        root: For each label the smallest one that it is tied to.
        apart: The same without the ties of queries to keys.
        parameters: Shape of each parameter.
        leaving: For each root whether its unit leaves the model.
    """
    roles = attention_roles(trace_log, apart)
    read = np.zeros(trace_log.total, dtype=bool)
    for labels, _ in trace_log.reads:
        read[root[labels.numpy()]] = True
    weights: dict[str, Weight] = {}
    for use in trace_log.weights:
        for weight in _parts(use, roles, root, apart, leaving & ~read, parameters):
            known = weights.get(weight.name)
            if known is None:
                weights[weight.name] = weight
            elif {known.role, weight.role} == {"input", "hidden"}:  # a loop over time that starts without units
                weights[weight.name] = replace(known, role="hidden")
            elif known.role != weight.role:
                role: WeightRole = "embedding" if "embedding" in (known.role, weight.role) else known.role
                weights[weight.name] = replace(known, role=role, tied=True)
    return tuple(weights.values())


def _parts(
    use: WeightUse,
    roles: AttentionRoles,
    root: np.ndarray,
    apart: np.ndarray,
    leaving: np.ndarray,
    parameters: Mapping[str, tuple[int, ...]],
) -> list[Weight]:
    """Part a weight by the roles of its rows, in order of their first row; those of attention head by head."""
    rows = apart[use.out_labels.numpy()]
    letters = roles.letter[rows]
    blocks = use.view.rows is None and len(rows) != math.prod(use.view.view[d] for d in use.view.out)
    if blocks and len(np.unique(letters)) > 1:  # gates, or groups of channels: rows of several matrices stay together
        letters = np.zeros_like(letters)
    found, first = np.unique(letters, return_index=True)
    parts = []
    for letter in found[np.argsort(first)]:
        positions = np.flatnonzero(letters == letter)
        heads = None
        role = LETTERS[letter - 1] if letter else _plain_role(use, roles, root, apart, leaving)
        if letter:
            mine = roles.head[rows[positions]]
            positions = positions if blocks else positions[np.argsort(mine, kind="stable")]
            heads = len(np.unique(mine))
        parts.append(_part(use, role, positions, heads, len(found) > 1, parameters))
    return parts


def _part(
    use: WeightUse,
    role: WeightRole,
    positions: np.ndarray,
    heads: int | None,
    split: bool,
    parameters: Mapping[str, tuple[int, ...]],
) -> Weight:
    view = use.view
    if not np.array_equal(positions, np.arange(len(use.out_labels))):
        chosen = torch.from_numpy(positions)
        view = replace(view, rows=chosen if view.rows is None else view.rows[chosen])
    name = f"{use.tensor}[{role}]" if split or view.rows is not None else use.tensor
    shape, module = parameters[use.tensor], use.location.module
    return Weight(name, use.tensor, view, role, shape, heads, gain=use.gain, computed=use.computed, module=module)


def _plain_role(
    use: WeightUse, roles: AttentionRoles, root: np.ndarray, apart: np.ndarray, leaving: np.ndarray
) -> WeightRole:
    if use.embedding:
        return "embedding"
    if leaving[root[use.out_labels.numpy()]].all():
        return "head"
    if use.reads_units and (roles.letter[apart[use.in_labels.numpy()]] == 1 + LETTERS.index("v")).all():
        return "o"
    return "hidden" if use.reads_units else "input"
