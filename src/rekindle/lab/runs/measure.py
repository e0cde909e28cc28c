"""Metrics of a network in training, as columns of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import Tensor, nn

from rekindle.graph import trace
from rekindle.graph.modules import tensors_of
from rekindle.metrics.features import gather_features
from rekindle.metrics.reading import MetricInputs
from rekindle.metrics.registry import metric
from rekindle.training.evaluation import batch_loss
from rekindle.training.stage import Stage

BATCHES, SIZE = 4, 256  # of the training data, without augmentation


def measurer(names: Sequence[str], seed: int) -> Callable[[nn.Module, Stage, Mapping[str, Tensor]], dict[str, Any]]:
    """Return a function that gives the summaries of some metrics as `metric.<name>`.

    A metric whose needs a run cannot meet raises: it is asked for by name.
    """

    def measure(model: nn.Module, stage: Stage, initial: Mapping[str, Tensor]) -> dict[str, Any]:
        was_training = model.training
        model.eval()
        try:
            inputs = _inputs(model, stage, initial, seed)
            return {f"metric.{name}": metric(name).measure(inputs).summary for name in names}
        finally:
            model.train(was_training)

    return measure


def _inputs(model: nn.Module, stage: Stage, initial: Mapping[str, Tensor], seed: int) -> MetricInputs:
    batches = tuple(islice(stage.train.in_order(SIZE), BATCHES))
    graph = trace(model, batches[0][0][:2], strict=False)
    features = gather_features(model, graph, batches, seed=seed)
    return MetricInputs(tensors_of(model), graph, initial, features, model, batches, batch_loss, seed)
