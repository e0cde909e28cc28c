"""Loss and accuracy of a model on examples or tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rekindle.errors import RekindleError
from rekindle.graph.calls.model_output import logits_of
from rekindle.training.examples import Examples
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens

Row = dict[str, Any]
AT_ONCE = 1024  # examples, or
TOKENS_AT_ONCE = 4096  # tokens in one batch of an evaluation: their logits over a vocabulary of 50,000 are 0.8 GB


class TrainingError(RekindleError):
    """Training came to a point from which it cannot go on."""


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor, precision: str = "float32") -> Tensor:
    """Return the mean cross entropy of a batch; under autocast the loss itself is computed in float32.

    Example:
        >>> logits = torch.zeros(2, 5, 8)  # 8 classes for each of 5 tokens
        >>> round(loss_of(nn.Identity(), logits, torch.zeros(2, 5, dtype=torch.long)).exp().item(), 3)
        8.0
    """
    return _cross_entropy(outputs_of(model, inputs, precision), labels)


def batch_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the loss of a batch of inputs and labels, as evidence is gathered with."""
    return loss_of(model, *batch)


def _cross_entropy(outputs: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross entropy of logits whose last dimension are the classes, one label for each of the others."""
    return cross_entropy(outputs.float().flatten(0, labels.ndim - 1), labels.flatten(), reduction=reduction)


def outputs_of(model: nn.Module, inputs: Tensor, precision: str = "float32") -> Tensor:
    """Return the logits of a batch; images are laid out channel by channel last, which is faster in both precisions."""
    if inputs.ndim == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    if precision == "float32":
        return _logits(model(inputs))
    with torch.autocast(inputs.device.type, torch.bfloat16):
        return _logits(model(inputs))


def _logits(output: Any) -> Tensor:
    logits = logits_of(output)
    if logits is None:
        raise TrainingError(
            expected="a model that gives logits: a tensor, or an output that holds them as `logits`",
            got=f"a {type(output).__name__} without",
            fix="wrap the model in a module that returns its logits",
        )
    return logits


def evaluation(model: nn.Module, stage: Stage, precision: str = "float32") -> Row:
    """Return accuracy and loss on the stage's test data, and accuracy on its other data; of tokens the loss alone."""
    if isinstance(stage.test, Tokens):
        return _evaluation_of_streams(model, stage.test, precision)
    accuracy_, loss = evaluate(model, stage.test, precision)
    others = {f"accuracy_{name}": evaluate(model, also, precision)[0] for name, also in stage.also.items()}
    return {"accuracy": accuracy_, "loss": loss, **others}


def _evaluation_of_streams(model: nn.Module, test: Tokens, precision: str) -> Row:
    """Return the loss on each stream, and their mean by shares: what a mixture in these shares would give."""
    losses = {name: evaluate(model, part, precision)[1] for name, part in test.parts.items()}
    shares = test.shares or (1.0,) + (0.0,) * (len(losses) - 1)
    mean = sum(share * loss for share, loss in zip(shares, losses.values(), strict=True)) / sum(shares)
    return {"loss": mean, **({f"loss_{name}": loss for name, loss in losses.items()} if len(losses) > 1 else {})}


@torch.no_grad()
def evaluate(model: nn.Module, examples: Examples | Tokens, precision: str = "float32") -> tuple[float, float]:
    """Return accuracy and mean cross entropy; the model's mode is kept.

    Example:
        >>> evaluate(nn.Identity(), Examples(torch.eye(4), torch.tensor([0, 1, 2, 0])))[0]
        0.75
    """
    was_training = model.training
    model.eval()
    correct, loss, count = 0, 0.0, 0
    size = max(1, TOKENS_AT_ONCE // examples.context) if isinstance(examples, Tokens) else AT_ONCE
    for inputs, labels in examples.in_order(size):
        outputs = outputs_of(model, inputs, precision)
        correct += int((outputs.argmax(dim=labels.ndim) == labels).sum())
        loss += float(_cross_entropy(outputs, labels, "sum"))
        count += labels.numel()
    model.train(was_training)
    return correct / count, loss / count
