"""How good a network is on test batches, as one number of which more is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rekindle.errors import RekindleError
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.calls.model_output import logits_of
from rekindle.observe import Loss
from rekindle.observe.batches import inputs_of, labels_of
from rekindle.observe.features import resting
from rekindle.observe.losses import class_dimension
from rekindle.observe.visit import size_of

ScoreFunction = Callable[[nn.Module, Sequence[Any]], float]


class ScoreError(RekindleError):
    """A score that is no number."""


@dataclass(frozen=True)
class Scorer:
    """Scores a network in evaluation mode, and leaves it as it was.

    Args:
        batches: To test on.
        loss: Function (model, batch) -> scalar, a mean over the samples of the batch.
        metric: The user's own function (model, batches) -> float, more is better.
        counts: Whether targets are classes, so that there is an accuracy.
    """

    batches: Sequence[Any]
    loss: Loss
    metric: ScoreFunction | None
    counts: bool

    @property
    def name(self) -> str:
        """What the score is."""
        return "metric" if self.metric is not None else "accuracy" if self.counts else "minus loss"

    @torch.no_grad()
    def __call__(self, model: nn.Module, seed: int = 0) -> dict[str, float]:
        """Return `score` and `loss`, and `accuracy` where targets are classes.

        Raises:
            ScoreError: The score is not a finite number.
        """
        with resting(model, seed, "score"):
            found = {"loss": _mean_loss(model, self.batches, self.loss)}
            if self.counts:
                found["accuracy"] = accuracy(model, self.batches)
            if self.metric is not None:
                found["score"] = float(self.metric(model, self.batches))
        found.setdefault("score", found["accuracy"] if self.counts else -found["loss"])
        if not math.isfinite(found["score"]):
            raise ScoreError(
                expected=f"a finite {self.name}",
                got=str(found["score"]),
                fix="the network may have diverged: take a smaller learning rate; else look at the metric",
            )
        return found


def scorer(model: nn.Module, batches: Sequence[Any], loss: Loss, metric: ScoreFunction | None) -> Scorer:
    """Return the scorer that fits: the user's metric, accuracy where targets are classes, else minus the loss."""
    with torch.no_grad(), resting(model, 0, "score"):
        counts = _is_classification(model, batches[0])
    return Scorer(batches, loss, metric, counts)


def accuracy(model: nn.Module, batches: Sequence[Any]) -> float:
    """Return the fraction of targets whose class has the largest output; negative targets are not counted.

    Example:
        >>> accuracy(nn.Identity(), [(torch.eye(4), torch.tensor([0, 1, 0, -100]))])
        0.6666666666666666
    """
    right = counted = 0
    dimension = None  # of the classes; as in the first batch, also where another would tell it otherwise
    for batch in batches:
        labels, output = labels_of(batch), _output(model, batch)
        logits = logits_of(output)
        assert labels is not None and logits is not None
        dimension = class_dimension(output, labels) if dimension is None else dimension
        known = labels >= 0
        right += int(((logits.argmax(dim=dimension) == labels) & known).sum())
        counted += int(known.sum())
    return right / max(1, counted)


def _is_classification(model: nn.Module, batch: Any) -> bool:
    labels = labels_of(batch)
    return labels is not None and class_dimension(_output(model, batch), labels) is not None


def _output(model: nn.Module, batch: Any) -> Any:
    args, kwargs = as_call(model, inputs_of(batch))
    return model(*args, **kwargs)


def _mean_loss(model: nn.Module, batches: Sequence[Any], loss: Loss) -> float:
    """Return the mean over samples; the loss of a batch is taken as a mean."""
    sizes = [size_of(batch) for batch in batches]
    total = sum(float(loss(model, batch)) * size for batch, size in zip(batches, sizes, strict=True))
    return total / max(1, sum(sizes))
