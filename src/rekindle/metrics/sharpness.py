"""Sharpness: how much the loss rises when noise is added to the parameters."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rekindle.metrics._loss import MeanLoss, Parameters
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading
from rekindle.seeds import generator

SIZES = (0.01, 0.03, 0.1, 0.3)
SIZE = 0.1  # the one that the summary tells
REPEATS = 5
SAMPLES = 256

METRIC = MetricCard(
    key="sharpness",
    title="Sharpness under Gaussian noise",
    source="Layerwise reinitialization, section 4 and Figure 5; Neyshabur et al. 2017",
    what="Mean change of the loss when each parameter tensor w gets noise N(0, (s |w| / sqrt(n))^2), n its number of "
    "elements: s = 0.1 in the summary, a curve over s in the details, 5 draws each, on at most about 256 samples. "
    "The paper adds N(0, s^2) of one size everywhere and looks at the accuracy; relative noise keeps layers of "
    "different scale, and networks of different weight norm, comparable.",
    unit="loss",
    direction="lower",
    range=(-math.inf, math.inf),
    needs=("loss",),
    known="Flat minima tend to generalize better. On new data a sharp surface makes training unsteady, which FIRE "
    "gives as one cause of lost plasticity.",
)


@dataclass(frozen=True)
class Curve:
    """How the loss changes along noise.

    Attributes:
        sizes: Relative sizes of the noise.
        changes: Change of the loss for each size and draw.
    """

    sizes: tuple[float, ...]
    changes: tuple[tuple[float, ...], ...]

    @property
    def means(self) -> list[float]:
        """Mean change for each size."""
        return [statistics.fmean(each) for each in self.changes]

    @property
    def deviations(self) -> list[float]:
        """Standard deviation over the draws for each size, 0 for a single draw."""
        return [statistics.stdev(each) if len(each) > 1 else 0.0 for each in self.changes]


def sharpness(
    loss: Callable[[Parameters], float],
    parameters: Parameters,
    sizes: Sequence[float] = SIZES,
    repeats: int = REPEATS,
    seed: int = 0,
) -> Curve:
    """Return the changes of a loss when noise is added; draw r is the same direction for every size.

    Args:
        loss: From parameters to a number.
        parameters: Where the noise starts.
        sizes: ScaleConstraints of the noise, relative to the root mean square of each tensor.
        repeats: Number of draws.
        seed: Seed of the draws.

    Example:
        >>> w = {"w": torch.ones(1000)}
        >>> curve = sharpness(lambda p: float((p["w"] - w["w"]).square().mean()), w, sizes=[0.5])
        >>> 0.24 < curve.means[0] < 0.26  # the variance of the noise, 0.25
        True
    """
    start = loss(parameters)
    changes = [[loss(noisy(parameters, size, seed, r)) - start for r in range(repeats)] for size in sizes]
    return Curve(tuple(sizes), tuple(tuple(each) for each in changes))


def noisy(parameters: Parameters, size: float, seed: int, repeat: int) -> Parameters:
    """Return the parameters with noise of a relative size; a tensor of zeros stays one."""

    def moved(name: str, w: Tensor) -> Tensor:
        scale = size * float(w.double().norm()) / math.sqrt(max(1, w.numel()))
        noise = torch.randn(w.shape, generator=generator(seed, name, f"sharpness {repeat}"))
        return w + scale * noise.to(w)

    return {name: moved(name, w) for name, w in parameters.items()}


def measure(inputs: MetricInputs) -> Reading:
    """Return the mean change of the loss at one size; the curve and the deviations are in the details."""
    loss = MeanLoss(inputs, SAMPLES)
    with loss.open(METRIC.key):
        curve = sharpness(loss, loss.parameters(trained_only=False), seed=inputs.seed)
    details = {
        "curve": [list(point) for point in zip(curve.sizes, curve.means, curve.deviations, strict=True)],
        "changes": [list(each) for each in curve.changes],
        "samples": loss.samples,
        "left_out": dict(inputs.graph.not_plain),
    }
    return Reading(METRIC.key, curve.means[curve.sizes.index(SIZE)], details=details)
