"""UPGD: an optimizer that perturbs what is of little use and protects what is of much."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.methods import Card, generator, optimizer_method, parameters_of

CARD = Card(
    title="Utility-based perturbed gradient descent (UPGD)",
    source="Elsayed and Mahmood 2024, Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning, "
    "Algorithm 1 (weight-wise, first order, global)",
    what="Gradient descent with noise, both less where a weight is useful. w <- (1 - lr decay) w - 2 lr (g + noise) "
    "(1 - sigmoid(U / max U)), with U the bias-corrected average of -g w.",
    when="Continual learning without task boundaries.",
    cost="Two passes over the parameters, one tensor of state for each, one synchronization for the largest utility.",
    deviations=(
        "Noise is drawn from a generator of its own by seed, parameter and step, so that a resumed run is bit-equal.",
        "Where no utility is above zero the largest is taken for one, so that nothing is divided by zero.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(4, 2)
>>> optimizer = rk.upgd(net, lr=0.01, sigma=0.001)
>>> net(torch.ones(1, 4)).sum().backward(); optimizer.step()
>>> sorted(optimizer.state[net.weight])
['avg_utility', 'step']
""",
)


@optimizer_method(CARD, identity={"lr": 0.0})
class Upgd:
    """Settings of UPGD.

    Args:
        lr: Learning rate.
        sigma: Standard deviation of the noise.
        beta_utility: Weight of the past in the average utility.
        weight_decay: Decoupled weight decay.
        seed: Seed of the noise.
    """

    lr: Annotated[float, Field(ge=0)] = 0.01
    sigma: Annotated[float, Field(ge=0)] = 0.001
    beta_utility: Annotated[float, Field(ge=0, lt=1)] = 0.9999
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    seed: int = 0

    def build(self, model: nn.Module, example: Any = None, *, graph: Any = None) -> Optimizer:
        """Return the optimizer for a model."""
        return PerturbedDescent([p for p in parameters_of(model).values() if p.requires_grad], self)


class PerturbedDescent(Optimizer):
    """The optimizer; `state_begins_at` tells rekindle what becomes of its state where a weight is edited."""

    state_begins_at: ClassVar[dict[str, float]] = {"avg_utility": 0.0}

    def __init__(self, parameters: Iterable[Tensor], settings: Upgd) -> None:
        super().__init__(parameters, {"lr": settings.lr, "weight_decay": settings.weight_decay})
        self._settings = settings

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moving = [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]
        utilities = [self._utility(p) for _, p in moving]
        largest = max((float(utility.max()) for utility in utilities if utility.numel()), default=1.0)
        for number, ((group, p), utility) in enumerate(zip(moving, utilities, strict=True)):
            spared = torch.sigmoid(utility / (largest if largest > 0 else 1.0))
            change = (p.grad + self._noise(p, number)) * (1 - spared)
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(change, alpha=-2 * group["lr"])
        return loss

    def _utility(self, p: Tensor) -> Tensor:
        """Return the average of -g w so far, corrected for its start at zero."""
        own, beta = self.state[p], self._settings.beta_utility
        if not own:
            own["step"], own["avg_utility"] = torch.zeros(()), torch.zeros_like(p)
        own["step"] += 1
        assert p.grad is not None
        own["avg_utility"].mul_(beta).add_(-p.grad * p, alpha=1 - beta)
        corrected: Tensor = own["avg_utility"] / (1 - beta ** float(own["step"]))
        return corrected

    def _noise(self, p: Tensor, number: int) -> Tensor:
        draw = generator(self._settings.seed, f"parameter {number}", f"step {int(self.state[p]['step'])}")
        return self._settings.sigma * torch.randn(p.shape, generator=draw).to(p)
