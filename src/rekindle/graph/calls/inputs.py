"""What an example is: the arguments of one call of a model, in the forms in which people have them.

A tensor is one argument, a tuple or list holds positional arguments, a dict (or any other mapping, as a `BatchEncoding`
of transformers) keyword arguments. Inside, everything is allowed that `torch.utils._pytree` knows, and dataclasses.
Whatever forward cannot take is refused here, with the names that it does take.
"""

from __future__ import annotations

import difflib
import inspect
import numbers
from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from rekindle.errors import GraphError

LABELS = "labels"  # what transformers calls targets, in batches and in forward
FORMS = "an example: a tensor, a tuple of positional arguments, or a dict of keyword arguments"


class Arguments(NamedTuple):
    """The arguments of one call: `model(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def as_call(model: nn.Module, example: Any) -> Arguments:
    """Return the arguments that a model is called with for an example.

    The `labels` of a dict stay out where forward does not take them: they are for the loss. A tuple with names (a
    NamedTuple) is a tuple; to give one whole, or a dict, write it into a tuple: `(batch,)`.

    Args:
        model: The model, of which the signature of `forward` is read.
        example: A tensor, a tuple or list of positional arguments, a mapping of keyword arguments, or `Arguments`.

    Raises:
        GraphError: It is no example, or forward cannot take it.

    Example:
        >>> as_call(nn.ReLU(), {"input": 1, "labels": 2})
        Arguments(args=(), kwargs={'input': 1})
    """
    if isinstance(example, Arguments):
        return example
    call = _spread(example)
    signature = signature_of(model)
    if signature is None:
        return call
    _refuse_pair(signature, call)
    if LABELS in call.kwargs and not takes(signature, LABELS):
        call = Arguments(call.args, {name: value for name, value in call.kwargs.items() if name != LABELS})
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        if model._forward_pre_hooks:  # they may change the arguments
            return call
        raise _misfit(model, signature, example, call) from error
    return call


def not_taken(model: nn.Module, example: Any) -> tuple[str, ...]:
    """Return notes of what `as_call` leaves out of an example."""
    taken = as_call(model, example)
    gone = (
        [name for name in example if name not in taken.kwargs] if isinstance(example, Mapping) and taken.kwargs else []
    )
    return tuple(f"left out of the example: {name}, which forward does not take" for name in gone)


def signature_of(model: nn.Module) -> Signature | None:
    """Return what forward takes; None where it cannot be read."""
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


def takes(signature: Signature, name: str) -> bool:
    """Tell whether a function takes a keyword argument of this name, be it among any others (`**kwargs`)."""
    named = signature.parameters.get(name)
    by_name = named is not None and named.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return by_name or any(each.kind is Parameter.VAR_KEYWORD for each in signature.parameters.values())


def _spread(example: Any) -> Arguments:
    _refuse_what_is_none(example)
    if isinstance(example, Mapping) and all(isinstance(name, str) for name in example):
        return Arguments((), dict(example))
    if isinstance(example, (tuple, list)) and not isinstance(example, PackedSequence):  # which is a tuple to Python
        return Arguments(tuple(example), {})
    return Arguments((example,), {})


def _refuse_what_is_none(example: Any) -> None:
    """Refuse what people pass by mistake and what no model computes with."""
    fixes: dict[Any, str] = {
        type(None): "pass an input as the model takes it, as in torch.zeros(1, 8); a model without inputs takes ()",
        str: "text has to be tokenized first: pass the tensors that your tokenizer makes of it (return_tensors='pt')",
        bytes: "pass tensors",
        numbers.Number: "pass a tensor, as in torch.zeros(1, 8); a number that forward takes goes into a tuple: (3,)",
        np.ndarray: "pass torch.as_tensor(array)",
        DataLoader: "pass one batch of it: next(iter(loader)); of a batch (inputs, targets) the inputs",
        Iterator: "pass one batch of it: next(iterator); of a batch (inputs, targets) the inputs",
    }
    fix = next((fix for kind, fix in fixes.items() if isinstance(example, kind)), None)
    if fix is not None:
        got = "None" if example is None else f"a {type(example).__name__}"
        raise GraphError(expected=FORMS, got=got, fix=fix)
    if isinstance(example, Mapping) and example and all(isinstance(value, list) for value in example.values()):
        if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(list(example.values()))):
            fix = "ask your tokenizer or data set for tensors: return_tensors='pt', with_format('torch')"
            raise GraphError(expected=FORMS, got=f"a {type(example).__name__} of lists without a tensor", fix=fix)


def _refuse_pair(signature: Signature, call: Arguments) -> None:
    """Refuse (inputs, targets) where inputs are a dict of forward's own arguments: it would be taken for the first."""
    first = call.args[0] if len(call.args) == 2 else None
    named = {each.name for each in _named(signature)}
    if isinstance(first, Mapping) and first and set(first) <= named:
        raise GraphError(
            expected=FORMS,
            got=f"a dict of forward's own arguments ({', '.join(first)}) and something beside it",
            fix="of a batch (inputs, targets) pass the inputs: example=batch[0]",
        )


def _misfit(model: nn.Module, signature: Signature, example: Any, call: Arguments) -> GraphError:
    """Return the error for arguments that forward cannot take: names on both sides, and the likely ways out."""
    ways = [_renamed(signature, call) or _spelled_out(example, call), _as_one(signature, example)]
    return GraphError(
        expected=f"arguments that {type(model).__name__}.forward takes: {_shown(signature)}",
        got=_told(example, call) + _what_is_wrong(signature, call),
        fix="; ".join(way for way in ways if way),
    )


def _named(signature: Signature) -> list[Parameter]:
    packed = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return [each for each in signature.parameters.values() if each.kind not in packed]


def _shown(signature: Signature) -> str:
    """Return the names with `=...` where they may be left out; annotations would fill the screen."""
    named = [each.name + ("" if each.default is Parameter.empty else "=...") for each in _named(signature)]
    return f"({', '.join(named)})"


def _told(example: Any, call: Arguments) -> str:
    if call.kwargs:
        return f"a {type(example).__name__} with the names {', '.join(call.kwargs)}"
    if isinstance(example, (tuple, list)):
        return f"a {type(example).__name__} of {len(call.args)} arguments"
    return "one argument" if call.args else f"an empty {type(example).__name__}"


def _what_is_wrong(signature: Signature, call: Arguments) -> str:
    unknown = _unknown(signature, call)
    try:
        given = set(signature.bind_partial(*call.args).arguments) | set(call.kwargs)
    except TypeError:
        return ": too many"
    missing = [each.name for each in _named(signature) if each.default is Parameter.empty and each.name not in given]
    said = [f"no {name}" for name in missing] + [f"{name} is not among them" for name in unknown]
    return f": {'; '.join(said)}" if said else ""


def _unknown(signature: Signature, call: Arguments) -> list[str]:
    return [name for name in call.kwargs if not takes(signature, name)]


def _as_one(signature: Signature, example: Any) -> str | None:
    """Return the way out if a dict, list or NamedTuple was meant as one argument: by parts it cannot be given."""
    named = _named(signature)
    alone = named and all(each.default is not Parameter.empty for each in named[1:])
    whole = isinstance(example, (Mapping, list)) or hasattr(example, "_fields")
    if not alone or not whole or (isinstance(example, Mapping) and any(takes(signature, name) for name in example)):
        return None
    kind = "dict" if isinstance(example, Mapping) else type(example).__name__
    return f"if the whole {kind} is the one argument {named[0].name}, write (batch,): a tuple that holds it"


def _renamed(signature: Signature, call: Arguments) -> str | None:
    known = [each.name for each in _named(signature) if each.name not in call.kwargs]
    near = {name: difflib.get_close_matches(name, known, 1) for name in _unknown(signature, call)}
    meant = [f"{found[0]} instead of {name}" for name, found in near.items() if found]
    return f"did you mean {', '.join(meant)}?" if meant else None


def _spelled_out(example: Any, call: Arguments) -> str:
    if call.kwargs:
        return (
            "name the entries as forward does; targets that it does not take go beside the inputs of a batch: "
            "(inputs, targets)"
        )
    if isinstance(example, (tuple, list)) and len(example) == 2:
        return "a tuple has one entry for each argument; of a batch (inputs, targets) pass the inputs: example=batch[0]"
    return (
        "pass a tuple with one entry for each argument, or a dict with their names; in a batch several inputs are a "
        "tuple beside the targets: ((first, second), targets)"
    )
