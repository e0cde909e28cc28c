"""DASH: shrink each weight vector by how well it points where the loss wants it to go."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    Card,
    Edit,
    Edits,
    Evidence,
    Gradients,
    Skip,
    UnitGraph,
    UnitIndex,
    Weight,
    matches,
    matrix_edits,
    one_shot_method,
    shrink_by_direction,
)

CARD = Card(
    title="DASH, direction-aware shrinking",
    source="Shin et al., DASH: Warm-Starting Neural Network Training in Stationary Settings without Loss of Plasticity "
    "(2024), Algorithm 1; as used in FIRE, D, Table 1 and Tables 6-8",
    what="Shrinks each weight vector by its cosine with the negative gradient. One pass over the data gives "
    "G <- (1 - alpha) G + alpha (-gradient), batch by batch from zero; then w <- w * clamp(cos(w, G), floor, 1). The "
    "cosine is taken for each output row of a linear weight, for each (out, in) kernel of a convolution, and for a "
    "bias as a whole. Normalization and embeddings stay.",
    when="When data of the same kind are added and training goes on from the old weights: what the loss still asks for "
    "is kept, the rest is shrunk. Less so where kernels are 1x1 (bottleneck and pointwise layers): a vector of one "
    "value makes the cosine a sign, so that each value is kept or goes down to the floor. The same holds for a linear "
    "layer of one input and a bias of one value. It forgets more than most (FIRE, Figure 5).",
    cost="One pass forward and backward over the data, plus a few passes over the parameters. Memory of two gradients "
    "beside the model.",
    deviations=(
        "floor is the paper's lambda. The defaults are what FIRE found best for ResNet-18 on CIFAR-10 (Tables 7, 8); "
        "it tried alpha 0.1 and 0.3, floor 0.05, 0.1 and 0.3.",
        "As in the published code only weights and biases of linear and convolution layers are shrunk: normalization "
        "parameters, embeddings (also one tied to the head), class tokens and position tables stay.",
        "A row is one output of the layer's matrix and a kernel one (out, in) pair, whatever the storage: GPT-2's "
        "Conv1D, grouped, transposed, 1-d and 3-d convolutions, channels_last (published code: no effect there). A "
        "bias fused of q, k and v is three vectors.",
        "A 1x1 kernel makes this a sign rule, as in the source: the cosine of two numbers is 1 or -1, so that a weight "
        "stays as it is if it has the sign of G, and is multiplied by the floor if not. So it is for a bias of one "
        "element.",
        "Under weight_norm the effective weight is shrunk, with its own gradient (found from those of gain and "
        "direction), and written through gain and direction.",
        "Where the gradient is zero there is no direction, and the factor is the floor, as published; zero weights "
        "stay zero. Parameters that are frozen or that no gradient reaches are left alone and listed.",
        "The model runs as in training (dropout seeded, batch statistics in BatchNorm), and gradients, running "
        "statistics, mode and generators stay as they were. The published code runs a deep copy.",
        "Optimizer moments are cleared where weights are shrunk (published code keeps them).",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(2, 1, bias=False)
>>> net.load_state_dict({"weight": torch.tensor([[3.0, 4.0]])})
<All keys matched successfully>
>>> batches = [torch.tensor([[0.0, 1.0]])]
>>> record = rk.dash_(net, data=batches, loss=lambda model, x: -model(x).sum())  # G points along (0, 1)
>>> [round(value, 3) for value in net.weight[0].tolist()]  # cos = 4/5
[2.4, 3.2]
""",
    needs=("data", "loss"),
)


@one_shot_method(CARD, identity={"floor": 1.0})
class Dash:
    """Settings of DASH.

    Args:
        alpha: Weight of the newest batch in the average of gradients.
        floor: Smallest factor, the paper's lambda; 1 changes nothing.
        skip: Patterns of tensor names to leave alone, as in `head.*`.
    """

    key: ClassVar[str]

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.3
    floor: Annotated[float, Field(ge=0, le=1)] = 0.05
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each weight and each bias, and a skip with the reason for those left alone."""
        if self.floor == 1:
            return Edits()
        found = evidence.gradients(self.key, self.alpha)
        edits: list[Edit] = []
        skips: list[Skip] = []
        for weight in graph.weights:
            reason = self._reason_to_skip(weight.tensor, found, weight)
            if reason:
                skips.append(Skip(weight.name, reason))
            else:
                edits += matrix_edits(weight, self._matrices(weight, found), self.key)
        biases = tuple(_biases(graph))
        for bias in biases:
            reason = self._reason_to_skip(bias, found)
            if reason:
                skips.append(Skip(bias, reason))
            else:
                edits += self._vectors(bias, graph, found)
        return Edits(tuple(edits), tuple(skips), _others(graph, biases))

    def _reason_to_skip(self, tensor: str, found: Gradients, weight: Weight | None = None) -> str:
        if matches(tensor, self.skip):
            return "named in skip"
        if weight is not None and weight.role == "embedding":
            return "an embedding" + (", tied to the head" if weight.tied else "")
        if weight is not None and weight.computed:
            return "its layer uses a value computed from it, which cannot be set"
        if weight is not None and weight.gain is not None and tensor not in found.effective:
            gain = weight.gain[0]
            return found.missing.get(tensor) or f"its gain: {found.missing.get(gain, 'no gradient')}"
        return found.missing.get(tensor, "" if tensor in found.average else "no gradient was gathered for it")

    def _matrices(self, weight: Weight, found: Gradients) -> partial[Tensor]:
        gradient = found.average[weight.tensor] if weight.gain is None else found.effective[weight.tensor]
        return partial(_shrink_matrices, direction=weight.view.read(gradient), floor=self.floor, weight=weight)

    def _vectors(self, bias: str, graph: UnitGraph, found: Gradients) -> Iterator[Edit]:
        whole = found.average[bias]
        for where in _parts(bias, graph):
            direction = whole if where is None else where.read(whole)
            op = partial(_shrink_vector, direction=direction, floor=self.floor)
            yield Edit(bias, op, self.key) if where is None else Edit(bias, op, self.key, where)


def _shrink_matrices(matrices: Tensor, direction: Tensor, floor: float, weight: Weight) -> Tensor:
    """Shrink [batch, out, in] by row, or by kernel: the kernel's positions are the batch, within each group."""
    direction = direction.to(matrices)
    if not any(d for d in weight.view.batch):  # no kernel; batch dimension 0 counts groups
        return shrink_by_direction(matrices, direction, floor, (-1,))
    groups = weight.view.view[0] if 0 in weight.view.batch else 1
    shape = (groups, -1, *matrices.shape[1:])  # [groups, positions, out, in]
    return shrink_by_direction(matrices.reshape(shape), direction.reshape(shape), floor, (1,)).reshape(matrices.shape)


def _shrink_vector(values: Tensor, direction: Tensor, floor: float) -> Tensor:
    flat = shrink_by_direction(values.reshape(-1), direction.reshape(-1).to(values), floor, (0,))
    return flat.reshape(values.shape)


def _biases(graph: UnitGraph) -> Iterator[str]:
    """Yield the biases of linear and convolution layers: known from the trace, or by name beside a weight."""
    traced = {s.tensor for g in graph.groups for s in (*g.incoming, *g.outgoing) if s.kind == "bias"}
    owners = {_owner(weight.tensor) for weight in graph.weights}
    for name, shape in graph.parameters.items():
        beside = name.endswith("bias") and _owner(name) in owners
        if len(shape) == 1 and (name in traced or beside):
            yield name


def _parts(bias: str, graph: UnitGraph) -> list[UnitIndex | None]:
    """Return the vectors that a bias holds: one, or those of the weights that are fused beside it."""
    (size,) = graph.parameters[bias]
    beside = [w.view.rows for w in graph.weights if _owner(w.tensor) == _owner(bias) and w.view.rows is not None]
    rows = [chosen for chosen in beside if chosen is not None]
    if not rows or not torch.equal(torch.cat(rows).sort().values, torch.arange(size)):
        return [None]
    return [UnitIndex((size,), (0,), chosen[:, None]) for chosen in rows]


def _owner(tensor: str) -> str:
    layer, parametrized, _ = f".{tensor}".partition(".parametrizations.")
    return layer[1:] if parametrized else tensor.rpartition(".")[0]


def _others(graph: UnitGraph, biases: tuple[str, ...]) -> tuple[str, ...]:
    treated = {*biases, *graph.gains, *(weight.tensor for weight in graph.weights)}
    others = [name for name in graph.parameters if name not in treated]
    if not others:
        return ()
    return (
        f"{len(others)} parameters that are no weight or bias of a linear or convolution layer stay "
        f"(first: {others[0]})",
    )
