"""What is observed on a model: evidence for methods and metrics."""

from rekindle.observe.evidence import Evidence, Reference, gather
from rekindle.observe.gradients import Data, Gradients, average_gradients
from rekindle.observe.losses import Loss
from rekindle.observe.statistics import STALE, Statistics, running_statistics, stale

__all__ = [
    "STALE",
    "Data",
    "Evidence",
    "Gradients",
    "Loss",
    "Reference",
    "Statistics",
    "average_gradients",
    "gather",
    "running_statistics",
    "stale",
]
