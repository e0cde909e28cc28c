"""Gradients over one pass of the data, averaged batch by batch, without touching the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.errors import EditError, PlanError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import parameters_of
from rekindle.graph.plain import valueless, why_not_plain
from rekindle.graph.unwrap import bare, refuse_sharded
from rekindle.kernels.precision import wide_dtype
from rekindle.observe.losses import HOW, Loss, default_loss
from rekindle.observe.visit import batches_of, device_of, no_values, size_of, visit

Data = Iterable[Any]
Model = nn.Module | Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Gradients:
    """The averaged negative gradient: where training wants each tensor to go.

    Attributes:
        average: By canonical name, float32 or wider.
        effective: Under weight_norm, the same for the weight that the layer uses, by the name of its direction.
        missing: Parameters without a gradient, with the reason.
        batches: Number of batches.
        loss: Mean loss over the samples; of a batch it is taken as a mean.
    """

    average: Mapping[str, Tensor]
    effective: Mapping[str, Tensor]
    missing: Mapping[str, str]
    batches: int
    loss: float


def average_gradients(
    model: Model, data: Data, loss: Loss | None = None, *, alpha: float, graph: UnitGraph, seed: int = 0
) -> Gradients:
    """Go through the data once: G <- (1 - alpha) G + alpha (-gradient), batch by batch, from G = 0.

    The model runs as in training, and nothing of it changes: no `.grad`, no mode, no running statistic, no generator.

    Args:
        model: The model; or a state dict, which is then what `loss` is called with.
        data: Batches, in the form that `loss` understands; tensors are moved to the model's device.
        loss: Function (model, batch) -> scalar. Left out, it is the model's own loss where it gives one, else cross
            entropy for batches (inputs, integer targets); see `observe.losses`.
        alpha: Weight of the newest batch.
        graph: The model's graph, for ties and weight_norm.
        seed: Seed of dropout and of a DataLoader's shuffling.

    Raises:
        PlanError: There is no data, the loss is not a finite scalar, or it does not depend on any parameter.
        EditError: A weight is not finite.

    Example:
        >>> from rekindle.graph.scan import scan
        >>> net = nn.Linear(2, 1, bias=False)
        >>> batches = [torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]])]
        >>> found = average_gradients(net, batches, lambda m, x: m(x).sum(), alpha=0.5, graph=scan(net))
        >>> found.average["weight"].tolist(), net.weight.grad
        ([[-0.25, -1.0]], None)
    """
    loss = _checked_loss(loss, model)
    if not isinstance(model, nn.Module):
        refuse_sharded(model)
        state, leaves = _leaves(model, graph)
        return _pass(state, leaves, {}, data, loss, alpha, graph)
    model = bare(model)
    parameters = parameters_of(model)
    if empty := valueless(parameters):
        raise no_values(empty[0], "gradients")
    odd = {name: why for name, p in parameters.items() if (why := why_not_plain(p))}
    leaves = {name: p for name, p in parameters.items() if p.requires_grad and name not in odd}
    frozen = {name: "frozen (requires_grad is False)" for name, p in parameters.items() if not p.requires_grad} | odd
    with visit(model, seed, "gradients"):
        return _pass(model, leaves, frozen, data, loss, alpha, graph)


def _pass(
    model: Model,
    leaves: Mapping[str, Tensor],
    frozen: Mapping[str, str],
    data: Data,
    loss: Loss,
    alpha: float,
    graph: UnitGraph,
) -> Gradients:
    tally = _Tally(alpha)
    losses: list[Tensor] = []
    sizes: list[int] = []
    parameters = list(leaves.values())
    with torch.enable_grad():
        for batch in batches_of(data, device_of(parameters), "gradients"):
            value = _checked_value(loss(model, batch), len(losses))
            tally.add(parameters, torch.autograd.grad(value, parameters, allow_unused=True))
            losses.append(value.detach().reshape(()))
            sizes.append(size_of(batch))
    _refuse_not_finite(leaves, losses, tally)
    torch._foreach_neg_(tally.average)
    pairs = zip(leaves, tally.average, tally.reached, strict=True)
    average = {name: tensor for name, tensor, reached in pairs if reached}
    silent = {name: "no gradient reaches it from this loss" for name in leaves if name not in average}
    values = parameters_of(model) if isinstance(model, nn.Module) else leaves
    mean = float(torch.stack(losses).cpu().double() @ torch.tensor(sizes, dtype=torch.float64)) / max(1, sum(sizes))
    return Gradients(average, _effective(average, values, graph), {**frozen, **silent}, len(losses), mean)


@dataclass
class _Tally:
    """The running average of gradients, G <- (1 - alpha) G + alpha g."""

    alpha: float
    average: list[Tensor] = field(default_factory=list)
    reached: list[bool] = field(default_factory=list)

    def add(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        if not self.average:
            self.average = [torch.zeros_like(p, dtype=wide_dtype(p.dtype), requires_grad=False) for p in parameters]
            self.reached = [False] * len(parameters)
        pairs = list(zip(self.average, gradients, strict=True))
        here = [(old, g) for old, g in pairs if g is not None]
        if here:
            torch._foreach_lerp_([old for old, _ in here], [_plain(g, old.dtype) for old, g in here], self.alpha)
        if len(here) < len(pairs):  # no gradient counts as a zero one
            torch._foreach_mul_([old for old, g in pairs if g is None], 1 - self.alpha)
        self.reached = [was or g is not None for was, g in zip(self.reached, gradients, strict=True)]


def _plain(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    dense = gradient.to_dense() if gradient.layout != torch.strided else gradient
    return dense.to(dtype)


def _leaves(state: Mapping[str, Tensor], graph: UnitGraph) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return a state dict to differentiate by: parameters once each, buffers and what is no plain floats as copies."""
    copies = {other for names in graph.aliases.values() for other in names}
    tensors = {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}
    plain = [name for name in graph.parameters if name in tensors and not why_not_plain(tensors[name])]
    leaves = {name: tensors[name].detach().requires_grad_() for name in plain}
    others = {n: t.detach().clone() for n, t in tensors.items() if n not in leaves and n not in copies}
    return {**others, **leaves}, leaves


def _effective(average: Mapping[str, Tensor], values: Mapping[str, Tensor], graph: UnitGraph) -> dict[str, Tensor]:
    """Return the gradient of W = g v/|v| from those of g and v.

    Along v it is the gain's, across it the direction's: dW = dg v/|v| + (|v|/g) dv. Where g is 0 so is W.
    """
    found = {}
    for gain, (direction, dim) in graph.gains.items():
        if gain in average and direction in average:
            v, g = values[direction].detach(), values[gain].detach()
            norm = torch.norm_except_dim(v, 2, dim).to(average[direction].dtype)
            g, along = g.reshape(norm.shape).to(norm), average[gain].reshape(norm.shape)
            inverse = torch.where(g != 0, 1 / torch.where(g != 0, g, 1), 0)
            unit = v.to(norm) / torch.where(norm > 0, norm, 1)
            found[direction] = along * unit + norm * inverse * average[direction]
    return found


def _checked_loss(loss: Any, model: Any) -> Loss:
    if loss is None and not isinstance(model, nn.Module):
        raise PlanError(
            expected="loss= beside data= for a state dict, which cannot run itself",
            got="none",
            fix="pass loss=: a function (state, batch) -> scalar that runs your model with torch.func.functional_call, "
            "or treat the live model",
        )
    if loss is None:
        return default_loss
    library = isinstance(loss, nn.Module) or str(getattr(loss, "__module__", "")).startswith("torch.nn")
    if library or not callable(loss):
        raise PlanError(
            expected="loss: a function (model, batch) -> scalar",
            got=f"{getattr(loss, '__name__', type(loss).__name__)}, which takes outputs and targets"
            if library
            else type(loss).__name__,
            fix=f"write for example {HOW}",
        )
    return loss


def _checked_value(value: Any, number: int) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise PlanError(
            expected="a loss that is one number",
            got=f"{f'shape {tuple(value.shape)}' if isinstance(value, Tensor) else type(value).__name__} "
            f"for batch {number}",
            fix="average it inside your loss function, as in .mean()",
        )
    if not value.requires_grad:
        raise PlanError(
            expected="a loss that depends on parameters which take gradients",
            got=f"one that depends on none, for batch {number}",
            fix="compute it from the model that your loss function is given, without no_grad or detach; and see that "
            "not all parameters are frozen",
        )
    return value


def _refuse_not_finite(leaves: Mapping[str, Tensor], losses: list[Tensor], tally: _Tally) -> None:
    """Tell what is broken: a weight, the loss, or a gradient. Looked at once, after the pass, so as not to slow it."""
    bad = (~torch.isfinite(torch.stack(losses))).nonzero()
    broken = [name for name, mean in zip(leaves, tally.average, strict=True) if not bool(torch.isfinite(mean).all())]
    if not len(bad) and not broken:
        return
    for name, tensor in leaves.items():
        if not bool(torch.isfinite(tensor).all()):
            raise EditError(
                expected=f"finite values in {name}",
                got=f"{int((~torch.isfinite(tensor)).sum())} of {tensor.numel()} NaN or infinite",
                fix="go back to a checkpoint from before the divergence; nothing was changed",
            )
    raise PlanError(
        expected="finite losses and gradients",
        got=f"a loss of {float(losses[int(bad[0])])} for batch {int(bad[0])}"
        if len(bad)
        else f"a gradient of {broken[0]} that is not",
        fix="check that batch and your loss function; nothing was changed",
    )
