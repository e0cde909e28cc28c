"""Soft Weight Rescaling: after every step, norms a little back toward where they began, the function kept in shape."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rekindle.graph.scaling.solve import Wish, prepare, wishes_of
from rekindle.methods import (
    Card,
    Evidence,
    KeeperError,
    MethodContext,
    MethodState,
    Multiply,
    NoEffectWarning,
    UnitGraph,
    Update,
    matches,
    per_step_method,
)
from rekindle.methods.last_layers import last_layers
from rekindle.methods.per_step._fused import Factors, Norms, each_for_itself
from rekindle.methods.rates import Rates

CARD = Card(
    title="Soft Weight Rescaling (SWR)",
    source="Soft Weight Rescaling: 3.2, 3.3, Algorithm 1, A (Theorem 1), B (Theorem 2, Corollary 2.1), C (Theorem 3), "
    "E (SWR + re-init)",
    what="After every step each weight goes a little back toward its initial norm n_l. "
    "c_l = (lambda n_l + (1 - lambda) |W_l|) / |W_l|, W_l <- c_l W_l, b_l <- C b_l with C the product of the factors "
    "up to there: the new function is C f(x), the same decisions. Norms stay bounded, |W_l| <= sqrt(B)/lambda + n_l if "
    "a step changes |W_l|^2 by at most B, and layers keep their balance. Scales and shifts of normalization layers "
    "count as W and b, running statistics follow. rebase(): n_l <- |W_l|.",
    when="When training goes on for long or on changing data and norms grow. Nothing is forgotten by it. Not against "
    "dormant units or a low rank: a common factor changes neither. Strengths of 1e-4 to 1e-2 were best for most "
    "networks of the paper, up to 1 for a classifier behind normalized features.",
    cost="A norm of each weight, a product of a small matrix, one multiplication of each tensor; no synchronization "
    "with the device. Measured in benchmarks/.",
    deviations=(
        "Residual branches are ours, not the paper's: a running product that disagrees at an addition is made equal, "
        "so that the function stays in proportion.",
        "Any traced graph, not only a chain: as in `rescale`, factors fit each other at biases, residual additions, "
        "shared and tied tensors; of all sets that do the one nearest to the c_l is taken, by least squares over the "
        "logarithms. In a chain every weight has exactly its c_l.",
        "What enters something that is not positively homogeneous (gelu, sigmoid, a softmax over scores) keeps its "
        "size, so that the function is scaled by one constant on every model; the bound does not hold for the weights "
        "that this fixes. proportional=False bounds them all and changes the function.",
        "Biases before a normalization get the running product too (Algorithm 1: their own c_l, which is right only "
        "if what comes in is not scaled). The normalization undoes it, up to its eps; running statistics go along.",
        "The classifier is the last layer (classifier=1). The paper's networks have several fully connected layers "
        "there and count them all: classifier='all'.",
        "re-init is automatic: where the learning rate of a parameter group drops within one step to at most "
        "`rebase_on_drop` of what it was, n_l <- |W_l| for the weights of that group. A drop counts from near the "
        "highest rate only, so that cosine and linear schedules come down without one. When the rate is back near its "
        "highest (a new stage, a warm-up that begins again) the earlier n_l are back too.",
        "Parameters that take no gradient when the Keeper starts keep their values, as if named in skip.",
        "A weight that is zero, not finite, or whose n_l is zero asks to stay as it is.",
        "Embeddings are weights. Under weight_norm the gain is scaled, and the direction left alone.",
        "Weights that are themselves bfloat16 cannot hold a factor nearer to one than about 1/256: small strengths "
        "have no effect on them. Keep float32 weights and use autocast.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> keeper = rk.Keeper(net, methods="soft_rescale:strength=0.5", example=torch.zeros(1, 8))
>>> first, x = net[0].weight.detach().clone(), torch.randn(5, 8)
>>> _ = net[0].weight.data.mul_(3.0)  # what training does, in one step
>>> before = net(x)
>>> _ = keeper.step()  # c = (0.5 * 1 + 0.5 * 3) / 3 = 2/3
>>> torch.allclose(net[0].weight, 2 * first), torch.allclose(net(x), before * 2 / 3, atol=1e-6)
(True, True)
""",
    needs=("example",),
    aliases=("swr", "soft_weight_rescaling"),
)

Strength = Annotated[float, Field(ge=0, le=1)]


@per_step_method(CARD, identity={"strength": 0.0})
class SoftRescale:
    """Settings of Soft Weight Rescaling.

    Args:
        strength: How far a norm goes back in one step (lambda): 0 not at all, 1 to where it began.
        strength_features: Instead of `strength` for everything before the classifier (lambda_f).
        strength_classifier: Instead of `strength` for the classifier (lambda_c).
        classifier: How many layers the classifier has, counted back from the output; all takes every fully connected
            one that is reached.
        proportional: Scale biases too, so that the function is only scaled; otherwise each weight for itself.
        rebase_on_drop: The weights' norms are taken for the new start when the learning rate drops within one step to
            at most this part of what it was; 0 or None for never.
        skip: Patterns of tensor names that keep their values; with `proportional` the others are fitted around them.
    """

    key: ClassVar[str]

    strength: Strength = 1e-3
    strength_features: Strength | None = None
    strength_classifier: Strength | None = None
    classifier: Annotated[int, Field(ge=1)] | Literal["all"] = 1
    proportional: bool = True
    rebase_on_drop: Annotated[float, Field(ge=0, lt=1)] | None = 0.5
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of Soft Weight Rescaling.

        Raises:
            KeeperError: The model was not traced, which these settings need, or lies on several devices.
        """
        self._check(context)
        kept = context.still() | {name for name in context.tensors if matches(name, self.skip)}
        wishes = [wish for wish in wishes_of(context.graph) if wish.tensor not in kept]
        return _State(self, context, wishes, self._strengths(context.graph, wishes), kept)

    def _of_features(self) -> float:
        return self.strength if self.strength_features is None else self.strength_features

    def _of_classifier(self) -> float:
        return self.strength if self.strength_classifier is None else self.strength_classifier

    def _strengths(self, graph: UnitGraph, wishes: Sequence[Wish]) -> list[float]:
        """Return lambda for each wish."""
        last = {slot.tensor for slot in last_layers(graph, self.classifier)[0]}
        return [self._of_classifier() if wish.tensor in last else self._of_features() for wish in wishes]

    def _check(self, context: MethodContext) -> None:
        apart = self._of_features() != self._of_classifier()
        if not context.graph.traced and (self.proportional or apart):
            why = "how the sizes of layers hang together" if self.proportional else "which layers are the classifier"
            raise KeeperError(
                expected=f"example= for soft_rescale, to see {why}",
                got="no example",
                fix="pass example= with an input of your model, or only strength= together with proportional=False to "
                "scale each weight for itself",
            )
        devices = {str(tensor.device) for tensor in context.tensors.values()}
        if len(devices) > 1:
            raise KeeperError(
                expected="all parameters and buffers on one device",
                got=", ".join(sorted(devices)),
                fix="move the model to one device before the Keeper is made",
            )


class _State(MethodState):
    def __init__(
        self,
        settings: SoftRescale,
        context: MethodContext,
        wishes: Sequence[Wish],
        strengths: Sequence[float],
        kept: Collection[str],
    ) -> None:
        asking = [number for number, strength in enumerate(strengths) if strength > 0]
        mine = [wishes[number] for number in asking]
        wide = any(context.tensors[wish.tensor].dtype == torch.float64 for wish in mine)
        self._norms = Norms(mine, torch.float64 if wide else torch.float32)
        self._weights = [context.tensors[wish.tensor] for wish in mine]
        self._rates = Rates(context.optimizers, settings.rebase_on_drop)
        self._tensors: list[Tensor] = []
        if mine:
            self._first = self._initial(context, mine)  # n_l before any automatic rebase
            self._strengths = self._first.new_tensor([strengths[number] for number in asking])
            self._aim(self._first)
            alone = not settings.proportional
            parts = each_for_itself(wishes) if alone else prepare(context.graph, wishes, kept).parts
            self._factors = Factors(parts, asking, self._strengths)
            self._tensors = [context.tensors[name] for name in self._factors.names]
            if not self._tensors:
                warnings.warn(
                    "soft_rescale changes nothing: every factor is fixed at one", NoEffectWarning, stacklevel=5
                )

    def _initial(self, context: MethodContext, wishes: Sequence[Wish]) -> Tensor:
        """Return the initial norms [wishes]."""
        evidence = Evidence(context.reference)
        first = [evidence.initial(wish.tensor, wish.shape, SoftRescale.key) for wish in wishes]
        return self._norms([t.to(now.device, self._norms.dtype) for t, now in zip(first, self._weights, strict=True)])

    def _aim(self, targets: Tensor) -> None:
        self._targets = targets
        self._asked = torch.where(targets > 0, self._strengths, 0.0)

    @torch.no_grad()
    def after_step(self, step: int) -> Iterable[Update]:
        if not self._tensors:
            return ()
        norms = self._norms(self._weights)
        dropped, back = self._rates.moved()
        if dropped or back:
            self._aim(torch.where(self._of(dropped), norms, torch.where(self._of(back), self._first, self._targets)))
        return (Multiply(self._tensors, self._factors(log_factors(norms, self._targets, self._asked))),)

    def _of(self, parameters: Collection[int]) -> Tensor:
        """Return which weights are among these parameters."""
        mine = [id(weight) in parameters for weight in self._weights]
        return torch.tensor(mine, device=self._targets.device)

    def rebase(self) -> None:
        if self._tensors:
            with torch.no_grad():
                self._first = self._norms(self._weights)
            self._aim(self._first)
            self._rates.forget()

    def state_dict(self) -> dict[str, Any]:
        if not self._tensors:
            return {}
        return {"targets": self._targets, "first": self._first, "rates": self._rates.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not self._tensors and not state:
            return
        if not state or not self._tensors or len(state["targets"]) != len(self._weights):
            raise KeeperError(
                expected=f"a state of soft_rescale for {len(self._weights)} weights",
                got=f"one for {len(state.get('targets', ()))}",
                fix="make the Keeper on the same model, with the same parameters frozen, as the one that was saved",
            )
        self._first = state["first"].to(self._targets)
        self._aim(state["targets"].to(self._targets))
        self._rates.load_state_dict(state["rates"])


def log_factors(norms: Tensor, targets: Tensor, strengths: Tensor) -> Tensor:
    """Return log c_l, c_l = (lambda n_l + (1 - lambda) |W_l|) / |W_l| (Algorithm 1); zero where that is not finite.

    Example:
        >>> log_factors(torch.tensor([4.0, 0.0]), torch.tensor([2.0, 1.0]), torch.tensor([0.5, 0.5])).exp().tolist()
        [0.75, 1.0]
    """
    return torch.lerp(norms, targets, strengths).div_(norms).log_().nan_to_num_(0.0, 0.0, 0.0)
