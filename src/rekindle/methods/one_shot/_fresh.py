"""Fresh values of a tensor for methods that draw some of it anew: by its own initializer, or from the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from rekindle.graph import UnitGraph
from rekindle.observe import Evidence

Draw = Callable[[], Tensor]
Fresh = Literal["init", "reference"]  # each layer's own initializer, or the values of reference=
UNKNOWN = "its initializer is not known; pass reference= (a function that builds the model)"


def fresh_values(
    graph: UnitGraph,
    evidence: Evidence,
    name: str,
    shape: tuple[int, ...],
    seed: int,
    key: str,
    fresh: Fresh = "init",
) -> Draw | None:
    """Return a function that gives the whole tensor afresh, or None where nobody knows how.

    The function is called when the edit is carried out, so that a plan holds no second copy of the model.

    Args:
        graph: Knows the initializers.
        evidence: Its reference is taken for parameters without a initializer, or for all.
        name: The tensor.
        shape: Its shape.
        seed: Seed of the draw, together with the name and the method.
        key: The method.
        fresh: Whether the initializer or the reference goes first. A reference that is the weights of the start gives
            the same values in every round, which is no draw.
    """
    stored = evidence.reference is not None and name in graph.parameters
    if stored and (fresh == "reference" or not graph.has_initializer(name)):
        start = evidence.initial(name, shape, key)
        return lambda: start
    if not graph.has_initializer(name):
        return None

    def draw() -> Tensor:
        drawn = graph.fresh(name, shape, seed, key)
        assert drawn is not None
        return drawn

    return draw
