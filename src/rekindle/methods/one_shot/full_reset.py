"""Full reset: every tensor drawn afresh by its own initializer."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from rekindle.methods import Card, Edit, Edits, Evidence, Skip, UnitGraph, matches, one_shot_method

CARD = Card(
    title="Full reset",
    source="The baseline of all four papers: FIRE 4.1, Soft Weight Rescaling D.2, layerwise reinitialization 1",
    what="Draws every parameter afresh by its layer's own initializer, and sets BatchNorm statistics back. "
    "With reference= the values are taken from there instead.",
    when="When nothing of the old is worth keeping, and as the yardstick: a treatment that does not beat a full reset "
    "is not worth its trouble.",
    cost="One pass over the parameters.",
    deviations=(
        "Parameters keep their identity, so that the optimizer goes on training them; replaced modules never reach it.",
        "The initializer is that of the layer's type (torch's reset_parameters, the config of a transformers model). "
        "If your model initializes itself in another way, pass the function that builds it as reference=.",
        "Parameters whose initializer is not known are left alone and listed.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(8, 6)
>>> _ = net.weight.data.fill_(7.0)
>>> record = rk.full_reset_(net)
>>> bool((net.weight.abs() <= 8 ** -0.5).all())
True
""",
)


@one_shot_method(CARD, identity={"skip": ("*",)})
class FullReset:
    """Settings of the full reset.

    Args:
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]
    scan_is_enough: ClassVar[bool] = True

    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each parameter and each running statistic."""
        edits, skips = [], []
        for name in (*graph.parameters, *graph.statistics()):
            if matches(name, self.skip):
                skips.append(Skip(name, "named in skip"))
            elif not graph.has_initializer(name) and evidence.reference is None:
                skips.append(
                    Skip(name, "its initializer is not known; pass reference= (a function that builds the model)")
                )
            else:
                edits.append(Edit(name, self._op(graph, evidence, name, seed)))
        return Edits(tuple(edits), tuple(skips))

    def _op(self, graph: UnitGraph, evidence: Evidence, name: str, seed: int) -> Callable[[Tensor], Tensor]:
        shape = graph.parameters.get(name)
        start = (
            evidence.initial(name, shape, self.key) if evidence.reference is not None and shape is not None else None
        )

        def op(old: Tensor) -> Tensor:
            drawn = graph.fresh(name, tuple(old.shape), seed, self.key) if start is None else start
            assert drawn is not None
            return drawn.to(old)

        return op
