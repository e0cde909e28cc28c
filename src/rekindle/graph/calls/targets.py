"""What of an example only the loss depends on, where `torch.export` cannot follow the loss.

The loss is no part of the graph. Mostly that is seen in what was exported: `model_output.loss_alone`. But a loss may
look at the values of its labels (how many there are, which boxes go together), and then nothing is exported at all. So
the model is run, at rest, to find out what the loss is made of. Names do not tell: an argument is a target if the model
gives the same without it, but for the loss. `labels` of which a model makes the inputs of its decoder, too, are
exchanged for those inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.graph.calls.containers import tensors_in
from rekindle.graph.calls.inputs import LABELS, Arguments, as_call, signature_of, takes
from rekindle.graph.calls.model_output import beside_loss, loss_in
from rekindle.graph.export import at_rest
from rekindle.graph.modules import call_with
from rekindle.graph.names import canonical
from rekindle.seeds import global_seed

DECODED = "decoder_input_ids"  # what `prepare_decoder_input_ids_from_labels` of transformers makes
EXCHANGED = f"left out: the loss, and {LABELS} of the example, for {DECODED} made of them"


def without_targets(model: nn.Module, example: Any) -> tuple[Arguments, tuple[str, ...]]:
    """Return the call of a model for an example without what only the loss depends on, and notes of what was left out.

    An example without optional arguments is not run at all; one without a loss is run once.

    Args:
        model: The model; run in evaluation mode on copies of its buffers, and left as it was.
        example: An example, see `as_call`.

    Example:
        >>> class Scored(nn.Linear):
        ...     def forward(self, x, y=None):
        ...         logits = super().forward(x)
        ...         return {"logits": logits} | ({} if y is None else {"loss": (logits - y).square().mean()})
        >>> call, notes = without_targets(Scored(2, 1), {"x": torch.zeros(3, 2), "y": torch.zeros(3, 1)})
        >>> list(call.kwargs), notes
        (['x'], ('left out: the loss, and y of the example, on which only it depends',))
    """
    call = as_call(model, example)
    optional = _optional(model, call)
    if not optional:
        return call, ()
    with _running(model) as run:
        whole = run(call)
        if whole is None or loss_in(whole) is None:
            return call, ()
        targets = [key for key in optional if _is_target(run(_without(call, [key])), whole)]
        bare = _without(call, targets)
        if targets and _is_bare(run(bare), whole):
            return bare, (_note(model, targets),)
        decoded = _decoded(model, call)
        if decoded is not None and _is_bare(run(decoded), whole):
            return decoded, (EXCHANGED,)
    return call, ()


def _optional(model: nn.Module, call: Arguments) -> list[int | str]:
    """Return which arguments with tensors may be left out: positions, and names of keyword arguments."""
    signature = signature_of(model)
    if signature is None:
        return [name for name, value in call.kwargs.items() if _has_tensors(value)]
    named = signature.parameters
    free = [name for name, each in named.items() if each.default is not each.empty]
    order = list(named)
    positions = [n for n, value in enumerate(call.args) if n < len(order) and order[n] in free and _has_tensors(value)]
    return [*positions, *(k for k, v in call.kwargs.items() if (k in free or k not in named) and _has_tensors(v))]


def _has_tensors(value: Any) -> bool:
    return bool(tensors_in(value))


def _without(call: Arguments, keys: list[Any]) -> Arguments:
    args = tuple(None if n in keys else value for n, value in enumerate(call.args))
    return Arguments(args, {name: value for name, value in call.kwargs.items() if name not in keys})


def _decoded(model: nn.Module, call: Arguments) -> Arguments | None:
    """Return the call with the decoder's inputs in place of `labels`, where the model says how they are made."""
    make = getattr(model, f"prepare_{DECODED}_from_{LABELS}", None)
    signature, labels = signature_of(model), call.kwargs.get(LABELS)
    if make is None or signature is None or DECODED in call.kwargs or not takes(signature, DECODED):
        return None
    rest = _without(call, [LABELS])
    return Arguments(rest.args, {**rest.kwargs, DECODED: make(labels)}) if isinstance(labels, Tensor) else None


def _is_target(output: Any, whole: Any) -> bool:
    """Tell whether an output differs from the whole one in the loss, and in nothing else."""
    if output is None or not _same(beside_loss(output), beside_loss(whole)):
        return False
    loss, before = loss_in(output), loss_in(whole)
    return loss is None or before is None or not _same([loss], [before])


def _is_bare(output: Any, whole: Any) -> bool:
    return output is not None and loss_in(output) is None and _same(beside_loss(output), beside_loss(whole))


def _same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    """Tell whether tensors are equal bit by bit; where they have no values (meta), whether their shapes are."""
    if [t.shape for t in ours] != [t.shape for t in theirs]:
        return False
    return all(a.is_meta or b.is_meta or torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@contextlib.contextmanager
def _running(model: nn.Module) -> Iterator[Any]:
    """Give a function that runs the model at rest, alike every time; it returns None where the model cannot be run."""

    def run(call: Arguments) -> Any:
        buffers = {canonical(name): buffer.clone() for name, buffer in model.named_buffers()}
        try:
            with global_seed(0, "forward", "example"):
                return call_with(model, buffers, call.args, call.kwargs)
        except Exception:  # whether this is the model's fault or the example's, the export tells
            return None

    with torch.no_grad(), at_rest(model):
        yield run


def _note(model: nn.Module, keys: list[int | str]) -> str:
    signature = signature_of(model)
    order = list(signature.parameters) if signature is not None else []
    names = [order[key] if isinstance(key, int) else key for key in keys]
    return f"left out: the loss, and {', '.join(names)} of the example, on which only it depends"
