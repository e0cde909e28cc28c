"""Whether two graphs say the same, and how often a model is exported: for tests of what is traced anew."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from rekindle.graph import programs
from rekindle.graph.initializers import ByModule

SAID = (
    "weights",
    "groups",
    "uncovered",
    "not_understood",
    "aliases",
    "initializers",
    "gains",
    "parameters",
    "traced",
    "notes",
)


def same_graph(one: Any, other: Any) -> bool:
    """Tell whether two graphs have the same weights, groups, initializers and reasons."""
    return all(_same(getattr(one, name), getattr(other, name)) for name in SAID)


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, ByModule):
        return (one.module, one.attribute) == (other.module, other.attribute)
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if dataclasses.is_dataclass(one):
        return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other)


class Exports:
    """Counts how often a model is exported."""

    def __init__(self, monkeypatch: Any) -> None:
        self.count = 0
        export = programs.export

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return export(*args, **kwargs)

        monkeypatch.setattr(programs, "export", counted)

    def of(self, work: Any) -> int:
        """Return how many exports some work takes."""
        before = self.count
        work()
        return self.count - before
