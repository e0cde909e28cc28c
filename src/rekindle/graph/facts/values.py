"""Facts about values and about what holds them: numbers, strings, lists, dicts, sets, arrays."""

from __future__ import annotations

import hashlib
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rekindle.graph.facts.looking import Facts, Unseen, looks_at

NUMBERS_AND_TEXT = (str, bytes, int, float, complex)
PLAIN = (*NUMBERS_AND_TEXT, bool, type(None), type(Ellipsis), type(NotImplemented), range)


@looks_at(*PLAIN)
def plain(facts: Facts, item: Any) -> None:
    """Look at a value; its type is said, because 1 == True == 1.0, and of a float every bit."""
    if type(item) in PLAIN:
        facts.found += (type(item), item.hex() if type(item) is float else item)
        return
    facts.kind(type(item))  # of a class of its own, such as an enumeration of strings
    base = next(each for each in NUMBERS_AND_TEXT if isinstance(item, each))
    facts.found.append(base.__repr__(item))
    facts.inside(item)


@looks_at(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, types.CodeType)
def unchanging(facts: Facts, item: Any) -> None:
    """Look at what is equal by its value, cannot change, and holds nothing else."""
    facts.found += (type(item), item)


@looks_at(list, tuple, deque)
def sequence(facts: Facts, items: Any) -> None:
    """Look at what is held, in order; of a deque also at how much that may be."""
    if facts.enters(items):
        if isinstance(items, deque):
            facts.found.append(items.maxlen)
        for item in items:
            facts.look(item)
        facts.leaves(items)


@looks_at(dict, types.MappingProxyType, defaultdict)
def mapping(facts: Facts, items: Mapping[Any, Any]) -> None:
    """Look at keys and values, in order."""
    if facts.enters(items):
        for key, value in items.items():
            facts.look(key)
            facts.look(value)
        facts.leaves(items)
        facts.look(getattr(items, "default_factory", None) if isinstance(items, defaultdict) else None)


@looks_at(set, frozenset)
def collection(facts: Facts, items: Any) -> None:
    """Look at a set, which has no order: values, and functions and classes by which they are."""
    members = list(items)
    if type(items) not in (set, frozenset) or not all(_is_value(item) or _is_code(item) for item in members):
        raise Unseen("a set of objects, which have no order")
    facts.found.append(frozenset((type(m).__name__, m if _is_value(m) else weakref.ref(m)) for m in members))


@looks_at(slice)
def sliced(facts: Facts, item: slice) -> None:
    """Look at the parts of a slice."""
    sequence(facts, (item.start, item.stop, item.step))


@looks_at(np.generic)
def number(facts: Facts, item: Any) -> None:
    """Look at a number of numpy."""
    sequence(facts, (type(item).__name__, item.item()))


@looks_at(np.ndarray)
def array(facts: Facts, items: np.ndarray[Any, Any]) -> None:
    """Look at an array and its values."""
    facts.found += (items.shape, items.dtype.str, items.strides)
    if items.dtype.hasobject:
        sequence(facts, items.reshape(-1).tolist())
    elif facts.values:
        facts.found.append(hashlib.sha256(items.tobytes()).digest())


def _is_value(item: Any) -> bool:
    return type(item) in PLAIN or (type(item) is tuple and all(map(_is_value, item)))


def _is_code(item: Any) -> bool:
    return isinstance(item, (type, types.FunctionType))
