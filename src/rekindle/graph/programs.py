"""What is exported of a model for an example: all of it, or pieces of it where something cannot be followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rekindle.errors import GraphError
from rekindle.graph.branching.left_out import Piece, Pieces, pieces_of
from rekindle.graph.branching.real_run import RealRun, record
from rekindle.graph.branching.stops import first_line, stop_of_error
from rekindle.graph.calls.containers import in_known_containers, map_tensors
from rekindle.graph.calls.inputs import Arguments, as_call, not_taken
from rekindle.graph.calls.packed import at_full_length
from rekindle.graph.calls.targets import without_targets
from rekindle.graph.export import export, exported, prepared
from rekindle.graph.modules import parameters_of
from rekindle.graph.plain import not_plain_in, valueless


@dataclass(frozen=True, eq=False)
class Programs:
    """What was exported.

    Args:
        pieces: The model as one piece, or parts of it.
        notes: What of the example is not in it.
        found: What was left out of the model, if something was.
    """

    pieces: Sequence[Piece]
    notes: tuple[str, ...] = ()
    found: Pieces | None = None


def programs_of(model: nn.Module, example: Any, *, strict: bool) -> Programs:
    """Export a model; with `strict` as a whole or not at all.

    Raises:
        GraphError: The model does not run with this example, or (with `strict`) cannot be exported as a whole.
    """
    notes = not_taken(model, example)
    call = as_call(model, example)
    empty = valueless(parameters_of(model))
    if empty and len(empty) == len(parameters_of(model)):  # structure needs no values
        call = Arguments(*map_tensors(lambda tensor: tensor.to("meta"), tuple(call)))
    try:
        return Programs([Piece("", export(model, call))], notes)
    except GraphError as error:
        refused = error
    if not empty:  # perhaps it is for the loss alone, whose code may look at the labels
        call, targets = without_targets(model, call)
        notes += targets
        try:
            if targets:
                return Programs([Piece("", export(model, call))], notes)
        except GraphError as error:
            refused = error
    if strict:
        if not empty:
            _real_run(model, call)  # a model that fails by itself is told so
        raise _about_odd_tensors(model, refused)
    found = _in_pieces(model, call)
    return Programs(found.pieces, notes, found)


def _about_odd_tensors(model: nn.Module, refused: GraphError) -> GraphError:
    """Return the refusal with a word about tensors that hold no plain floats, if there are any."""
    name, why = next(iter(not_plain_in(model).items()), ("", ""))
    if not why:
        return refused
    return GraphError(
        expected=refused.expected,
        got=f"{refused.got}; the model has {name}, {why}",
        fix=f"{refused.fix}; if that tensor is what cannot be followed, leave example= out: methods that need no "
        "roles then treat the layers that are known by their types",
    )


def _in_pieces(model: nn.Module, call: Arguments) -> Pieces:
    """Export what can be exported of a model that cannot be as a whole.

    Raises:
        GraphError: It does not run.
    """
    with prepared(model), in_known_containers(model, at_full_length(call)) as (args, kwargs), torch.no_grad():
        return pieces_of(model, _recorded(model, args, kwargs), exported)


def _real_run(model: nn.Module, call: Arguments) -> RealRun:
    with prepared(model), in_known_containers(model, at_full_length(call)) as (args, kwargs), torch.no_grad():
        return _recorded(model, args, kwargs)


def _recorded(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RealRun:
    try:
        return record(model, args, kwargs)
    except Exception as error:
        stop = stop_of_error(error, model)
        place = f" at {stop.place}" if stop.file else ""
        raise GraphError(
            expected="a model that runs with this example in evaluation mode",
            got=f"model(example) fails: {first_line(error)}{place}",
            fix="call model.eval()(example) yourself: shapes, types and devices of the example have to be those that "
            "the model takes",
        ) from error
