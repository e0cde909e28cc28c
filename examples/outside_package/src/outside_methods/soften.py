"""Soften: a one-shot method, the smallest there is."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rekindle.methods import Card, Edit, Edits, Evidence, UnitGraph, one_shot_method

# The card: what a user must know, under the headings that all methods share. `rekindle list soften` prints it.
CARD = Card(
    title="Soften",
    source="an example; name paper, section and equation here",
    what="Multiplies every parameter by a factor. w <- factor w.",
    when="Never; it shows what a method looks like.",
    cost="One pass over the parameters.",
    deviations=("None: there is no source to deviate from.",),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(2, 1)
>>> record = rk.soften_(net, factor=0.25)
>>> record.changed
3
""",
)


@one_shot_method(CARD, identity={"factor": 1.0})  # the settings with which it changes nothing
class Soften:
    """Settings of soften.

    Args:
        factor: What every parameter is multiplied by.
    """

    factor: Annotated[float, Field(gt=0, le=1)] = 0.5

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each parameter; nothing is written here."""
        if self.factor == 1:
            return Edits()
        return Edits(tuple(Edit(name, lambda old: self.factor * old) for name in graph.parameters))
