"""Weights that do not fall silent with the parameters that they are computed from: zero in `w` is not zero in `exp(w)`.

A group that such a weight reads cannot be tried there. It must be told from a reader that the graph has forgotten: a
low-rank update that is added to a weight leaves a part of it, too, and that part has a parameter of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rekindle.graph.groups import Slot
from rekindle.graph.proof.refutation import SILENT
from rekindle.graph.proof.spread import Broken, Spread, change
from rekindle.graph.proof.tape import Tape

Tensors = Mapping[str, Tensor]


def never_silent(tape: Tape, silent: Tensors, outgoing: Sequence[Slot]) -> frozenset[int]:
    """Return the values on a tape that are weights computed from outgoing slots, and not zero where the slots are.

    Args:
        tape: A call of the model.
        silent: The tensors that are replaced for silence, by name.
        outgoing: The slots that are at zero in them.
    """
    computed = {value for slot in outgoing for value in _meets_data(tape, tape.leaves[slot.tensor])}
    return frozenset(value for value in computed if not tape.plain[value] and _stays(tape, value, silent, outgoing))


def _meets_data(tape: Tape, leaf: int) -> set[int]:
    """Return what is computed from a leaf alone and then meets what the model was called with."""
    found, todo, seen = set(), [leaf], {leaf}
    while todo:
        value = todo.pop()
        for made in (made for index in tape.users[value] for made in tape.nodes[index].outputs):
            if tape.data[made]:
                found.add(value)
            elif made not in seen:
                seen.add(made)
                todo.append(made)
    return found


def _stays(tape: Tape, value: int, silent: Tensors, outgoing: Sequence[Slot]) -> bool:
    """Tell whether a computed weight is there with its slots at zero, by no parameter that the slots leave out."""
    names = tape.names_behind(value)
    slots = [slot for slot in outgoing if slot.tensor in names]
    value = _viewed(tape, value)
    zero = {slot.tensor: torch.zeros_like(silent[slot.tensor]) for slot in slots}
    try:
        if not _is_there(_rest(tape, value, silent, slots, zero)):
            return False
        added = [name for name in names if name not in zero and _is_added(tape, value, name, zero)]
        return _is_there(_rest(tape, value, {**silent, **_zeros(tape, added)}, slots, zero))
    except Broken:
        return False


def _rest(tape: Tape, value: int, silent: Tensors, slots: Sequence[Slot], zero: Tensors) -> Tensor:
    """Return what is left of a weight where its slots are; as a whole where it has not the shape of its tensor."""
    left = _made_of(tape, value, silent)
    shaped = [slot for slot in slots if silent[slot.tensor].shape == left.shape]
    if not shaped:
        return _made_of(tape, value, {**silent, **zero})
    return torch.cat([left[slot.where.mask(silent[slot.tensor])] for slot in shaped])


def _is_added(tape: Tape, value: int, name: str, zero: Tensors) -> bool:
    """Tell whether a parameter adds to a weight what does not depend on the slots."""
    leaf = tape.leaves[name]
    if not tape.learned[leaf]:  # a constant is no reader that could have been forgotten
        return False
    other = {name: 2 * tape.values[leaf] + 1}
    mine, others = (_made_of(tape, value, each) for each in ({}, other))
    return change(mine - _made_of(tape, value, zero), others - _made_of(tape, value, {**zero, **other})) <= SILENT


def _made_of(tape: Tape, value: int, tensors: Tensors) -> Tensor:
    return Spread(tape, [tensors], SILENT).still(value)


def _zeros(tape: Tape, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(tape.values[tape.leaves[name]]) for name in names}


def _viewed(tape: Tape, value: int) -> int:
    """Return what a value is a view of."""
    while (made := tape.maker[value]) is not None and getattr(tape.nodes[made].target, "is_view", False):
        value = tape.nodes[made].inputs[0]
    return value


def _is_there(weight: Tensor) -> bool:
    return weight.numel() > 0 and bool((weight.abs() > SILENT).any())
