"""What is in a batch: what the model is given, and what it should answer.

A batch is (inputs, targets), a mapping of the model's arguments with `labels` among them as transformers has it, or
inputs alone. Inputs are an example, see `rekindle.graph.calls.inputs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from rekindle.graph.calls.inputs import LABELS


def split(batch: Any) -> tuple[Any, Any]:
    """Return inputs and targets of a batch; None for targets where there are none.

    The inputs of a mapping are all of it, because a model may make more than the loss of its `labels`. Of a tuple or
    list the first is the inputs; the second are the targets, if there are two.

    Example:
        >>> split(("images", "classes")), split(["images"]), split({"input_ids": 1, "labels": 2})
        (('images', 'classes'), ('images', None), ({'input_ids': 1, 'labels': 2}, 2))
    """
    if isinstance(batch, Mapping):
        return batch, batch.get(LABELS)
    if isinstance(batch, (tuple, list)) and batch and not isinstance(batch, PackedSequence):
        return batch[0], batch[1] if len(batch) == 2 else None
    return batch, None


def inputs_of(batch: Any) -> Any:
    """Return what of a batch the model is given: an example."""
    return split(batch)[0]


def labels_of(batch: Any) -> Tensor | None:
    """Return the targets of a batch if they are integers, else None."""
    found = split(batch)[1]
    return found if isinstance(found, Tensor) and not found.is_floating_point() and not found.is_complex() else None


def with_labels(batch: Any, labels: Tensor) -> Any:
    """Return a batch with other targets."""
    return {**batch, LABELS: labels} if isinstance(batch, Mapping) else (inputs_of(batch), labels)


def in_plain_dicts(batch: Any) -> Any:
    """Return a batch whose mappings are plain dicts, whatever class they were of: `BatchEncoding`, `UserDict`.

    Only then `torch.utils._pytree` finds the tensors in them. Only the batch itself and its parts are looked at: what
    is deeper inside is an argument, and the model may ask for its class.
    """
    if isinstance(batch, Mapping):
        return dict(batch)
    if type(batch) in (tuple, list):
        return type(batch)(dict(part) if isinstance(part, Mapping) else part for part in batch)
    return batch
