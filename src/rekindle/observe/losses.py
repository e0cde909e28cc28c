"""The loss of a batch where the user gives none, and which of a model's answers goes with which target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rekindle.errors import PlanError
from rekindle.graph.calls.inputs import LABELS, as_call, signature_of
from rekindle.graph.calls.model_output import logits_of, loss_in
from rekindle.observe.batches import labels_of, split

Loss = Callable[[Any, Any], Tensor]  # (model, batch) -> scalar

HOW = "loss=lambda model, batch: cross_entropy(model(batch[0]), batch[1])"
TARGETS = (LABELS, "targets")  # names under which models take what they compute their own loss from


def default_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss of a batch as it is usual for the model.

    The model's own loss, where it gives one: for a mapping with `labels`, and for (inputs, targets) if forward takes
    `labels` or `targets`. So a language model shifts its labels and leaves out those of -100, a regression has squared
    errors. Otherwise it is the cross entropy of the logits (see `logits_of`) and integer targets.

    Args:
        model: The model.
        batch: (inputs, targets), or a mapping of the model's arguments.

    Raises:
        PlanError: There is no loss in the output, and targets are no integers or do not go with the logits.
        GraphError: forward cannot take the batch.

    Example:
        >>> round(float(default_loss(nn.Identity(), (torch.zeros(3, 4), torch.tensor([0, 1, 2])))), 4)  # log 4
        1.3863
    """
    inputs, targets = split(batch)
    pair = not isinstance(batch, Mapping)
    if pair and not isinstance(targets, Tensor):
        raise _no_default(f"a {type(batch).__name__} without targets")
    name = _taken_as(model) if pair else None
    args, kwargs = as_call(model, inputs)
    if name is not None and name not in kwargs and _fits(model, args, {**kwargs, name: targets}):
        own = loss_in(model(*args, **{**kwargs, name: targets}))
        if own is not None:
            return own
    output = model(*args, **kwargs)
    own = None if pair else loss_in(output)
    return _cross_entropy(output, batch) if own is None else own


def _taken_as(model: nn.Module) -> str | None:
    """Return under which name forward may be given targets."""
    signature = signature_of(model)
    found = signature.parameters if signature is not None else {}
    return next((name for name in TARGETS if name in found and found[name].default is None), None)


def _fits(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    signature = signature_of(model)
    try:
        return signature is not None and signature.bind(*args, **kwargs) is not None
    except TypeError:  # the inputs have taken its place
        return False


def _cross_entropy(output: Any, batch: Any) -> Tensor:
    labels, logits = labels_of(batch), logits_of(output)
    if labels is None:
        given = split(batch)[1] is not None
        why = "whose targets are not integers" if given else "without labels"
        told = f"a {type(batch).__name__} {why}, and a model that gives no loss for it"
        raise _no_default(told, HOW.replace("cross_entropy", "mse_loss") if given else HOW)
    dimension = class_dimension(output, labels)
    if logits is None or dimension is None:
        shown = type(output).__name__ if logits is None else tuple(logits.shape)
        raise _no_default(f"outputs {shown} for targets {tuple(labels.shape)}")
    return cross_entropy(logits.movedim(dimension, 1), labels.long())


def _no_default(got: str, how: str = HOW) -> PlanError:
    return PlanError(
        expected="loss=, or batches that tell it: dicts for which the model gives a loss, or (inputs, targets) with "
        "integer targets and outputs (samples, classes, ...)",
        got=got,
        fix=f"pass loss=: a function (model, batch) -> scalar, as in {how}",
    )


def class_dimension(output: Any, labels: Tensor) -> int | None:
    """Return the dimension of the logits along which classes are, if each of the labels goes with one answer.

    It is the second, as cross entropy has it: (samples, classes, ...). Of an output that holds logits of three or more
    dimensions nobody knows: models of text have their classes last, and language models shift their labels. There the
    model's own loss decides, which is then the cross entropy along the one or the other.

    Example:
        >>> [class_dimension(torch.zeros(shape), torch.zeros(2, 7)) for shape in ((2, 5, 7), (2, 7, 5))]
        [1, None]
    """
    logits = logits_of(output)
    if logits is None or logits.dim() < 2:
        return None
    fitting = [dim for dim in (1, logits.dim() - 1) if _without(logits.shape, dim) == tuple(labels.shape)]
    fitting = [dim for dim in fitting if logits.shape[dim] > 1]
    if isinstance(output, Tensor) or logits.dim() == 2:
        return 1 if 1 in fitting else None
    own = loss_in(output)
    told = [dim for dim in fitting if own is not None and _gives(own, logits.movedim(dim, 1), labels)]
    return told[0] if told and not (own is not None and _is_shifted(own, logits, labels)) else None


def _without(shape: torch.Size, dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


def _is_shifted(own: Tensor, logits: Tensor, labels: Tensor) -> bool:
    """Tell whether a loss may as well be that of the next token: of equal logits nobody knows."""
    text = logits.dim() == 3 and logits.shape[:2] == labels.shape and logits.shape[1] > 1
    return text and _gives(own, logits[:, :-1].movedim(-1, 1), labels[:, 1:])


@torch.no_grad()
def _gives(own: Tensor, logits: Tensor, labels: Tensor) -> bool:
    """Tell whether a loss is the cross entropy of logits (samples, classes, ...), up to rounding."""
    if bool(((labels >= logits.shape[1]) | ((labels < 0) & (labels != -100))).any()):
        return False
    found = cross_entropy(logits.float(), labels.long())
    close = max(1e-5, 4 * torch.finfo(own.dtype).eps)
    return bool(torch.isclose(found, own.float().reshape(()), rtol=close, atol=0.0, equal_nan=True))
