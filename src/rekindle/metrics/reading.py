"""What a metric gives, what it needs, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

if TYPE_CHECKING:
    from rekindle.graph import UnitGraph
    from rekindle.metrics.features import Features

Need = Literal["weights", "units", "reference", "features", "loss"]
Direction = Literal["lower", "higher", "neither"]


@dataclass(frozen=True)
class MetricCard:
    """The card of a metric.

    Args:
        key: Its one spelling: file name, word of the CLI.
        title: Its full name.
        source: Paper, section and equation.
        what: What it is, with the formula.
        unit: Unit of the reading.
        direction: Which way is better, as far as is known.
        range: Smallest and largest value.
        needs: "weights" (tensors and their matrices), "units" (a traced graph), "reference" (initial weights),
            "features" (activations over data), "loss" (a live model, data and a loss).
        known: What is known about how well it predicts a loss of plasticity.
    """

    key: str
    title: str
    source: str
    what: str
    unit: str
    direction: Direction
    range: tuple[float, float]
    needs: tuple[Need, ...]
    known: str


@dataclass(frozen=True, eq=False)
class Reading:
    """What a metric gave.

    Args:
        metric: Key of the metric.
        summary: One number for the model.
        parts: One number for each layer or group.
        details: Plain data for charts: spectra, curves; lists of numbers by part.
    """

    metric: str
    summary: float
    parts: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MetricInputs:
    """What is looked at. Metrics read what they declared in `needs` and nothing else.

    Attributes:
        tensors: Parameters and buffers by canonical name; possibly read lazily from a file, one at a time.
        graph: Weights with their matrix views, and groups of units if `graph.traced`.
        reference: Initial weights by name.
        features: Activations over data.
        model: The live model.
        batches: Batches of data, kept in memory.
        loss: Function (model, batch) -> scalar, a mean over the samples of the batch.
        seed: Seed of every draw.
        memory: What metrics computed once and share (singular values); a inputs is looked at once, and not changed.
    """

    tensors: Mapping[str, Tensor]
    graph: UnitGraph
    reference: Mapping[str, Tensor] | None = None
    features: Features | None = None
    model: nn.Module | None = None
    batches: tuple[Any, ...] = ()
    loss: Any = None
    seed: int = 0
    memory: dict[str, Any] = field(default_factory=dict, repr=False)

    def has(self, need: Need) -> bool:
        """Tell whether a need is met."""
        return {
            "weights": True,
            "units": self.graph.traced and bool(self.graph.groups),
            "reference": self.reference is not None,
            "features": self.features is not None,
            "loss": self.model is not None and bool(self.batches) and self.loss is not None,
        }[need]
