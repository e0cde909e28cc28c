"""Head reset: the last linear layers drawn afresh."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    Card,
    Edit,
    Edits,
    Evidence,
    PlanError,
    Skip,
    UnitGraph,
    UnitIndex,
    Where,
    Whole,
    matches,
    one_shot_method,
)
from rekindle.methods.last_layers import last_layers
from rekindle.methods.one_shot._fresh import UNKNOWN, Draw, Fresh, fresh_values

CARD = Card(
    title="Head reset (FC)",
    source="Soft Weight Rescaling, D.2 (head reset, after Nikishin et al. 2022); The Impact of Reinitialization on "
    "Generalization in Convolutional Neural Networks, 1 (FC)",
    what="Draws the last linear layers afresh by their own initializer, with their biases. layers=1: every weight that "
    "writes nothing but outputs. layers=N goes back N layers over fully connected ones, layers='all' (the FC of the "
    "second source) until something else comes: a convolution, an embedding, attention.",
    when="When the features are worth keeping and what is made of them is not: new labels, reinforcement learning with "
    "a high replay ratio. Not when the features themselves have lost plasticity.",
    cost="One pass over the layers that are drawn.",
    deviations=(
        "Which layers are last is read from the traced graph, not from names or the order of definition; all heads of "
        "a model with several (dueling, several outputs) are heads.",
        "A head that is tied to an embedding or to another layer is left alone, and said so.",
        "On the way back all writers of what a drawn layer reads are one layer. Where one of them is no plain fully "
        "connected layer (a residual stream of a transformer), the way ends there.",
        "Normalization between drawn layers is set back too, with its running statistics: they describe units that "
        "are gone. The papers' classifiers have none.",
        "A head that is a convolution (All-CNN, a decoder) is drawn afresh; the way ends there.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> record = rk.head_reset_(net, example=torch.zeros(1, 8))
>>> [row.tensor for row in record.rows]
['2.weight', '2.bias']
""",
    needs=("example",),
)


@one_shot_method(CARD, identity={"skip": ("*",)})
class HeadReset:
    """Settings of the head reset.

    Args:
        layers: How many layers, counted back from the output; all takes every fully connected one that is reached.
        fresh: Where fresh values come from: each layer's own initializer (init), or reference=, which is also taken
            where the initializer is not known.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    layers: Annotated[int, Field(ge=1)] | Literal["all"] = 1
    fresh: Fresh = "init"
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each tensor of the last layers."""
        if not graph.traced:
            raise PlanError(
                expected="example= for head_reset, to tell which layers are last",
                got="no example",
                fix="pass example= with an input of your model",
            )
        slots, skips, depth = last_layers(graph, self.layers)
        edits: list[Edit] = []
        for name in dict.fromkeys(slot.tensor for slot in slots):
            places = [slot.where for slot in slots if slot.tensor == name]
            shape = graph.parameters.get(name, places[0].view)
            if matches(name, self.skip):
                skips.append(Skip(name, "named in skip"))
                continue
            draw = fresh_values(graph, evidence, name, shape, seed, self.key, self.fresh)
            if draw is None:
                skips.append(Skip(name, UNKNOWN))
            else:
                edits += [_redraw(name, where, draw) for where in _joined(places)]
        return Edits(tuple(edits), tuple(skips), self._notices(depth))

    def _notices(self, depth: int) -> tuple[str, ...]:
        if self.layers == "all" or depth in (0, self.layers):
            return ()
        return (f"{depth} of {self.layers} layers: what comes before is not plainly fully connected",)


def _joined(places: list[UnitIndex]) -> list[Where]:
    """Return the regions, or the whole tensor where they cover it."""
    nothing = torch.zeros(places[0].view, dtype=torch.bool)
    covered = nothing.reshape(-1)
    for where in places:
        covered = covered | where.mask(nothing).reshape(-1)
    return [Whole()] if bool(covered.all()) else list(places)


def _redraw(name: str, where: Where, draw: Draw) -> Edit:
    def op(old: Tensor) -> Tensor:
        return where.read(draw()).to(old).reshape(old.shape)

    return Edit(name, op, HeadReset.key, where)
