"""Load a state dict that tells of a changed structure into a model that was built afresh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.edits.inserted import BUFFERS, PARTS, Injected, is_standardized
from rekindle.edits.operate import carry_out, prepare
from rekindle.edits.optimizer_state import as_sequence
from rekindle.edits.surgery import Standardize, Surgery, Twins
from rekindle.edits.write import Journal
from rekindle.errors import EditError
from rekindle.graph.modules import submodule, tensors_of
from rekindle.graph.plain import overlaps_itself, why_not_in_place
from rekindle.graph.unwrap import bare


def restore_(model: nn.Module, state: Mapping[str, Tensor], optimizer: Optimizer | None = None) -> None:
    """Give a model the structure that a state dict tells of, then load it.

    What `plasticity_injection_` and `layerwise_` put into a model is read from the names in the state dict; one without
    such names is loaded as usual. Parameters below an injected module are frozen again.

    Args:
        model: A model as its class builds it, or with some of the structure already.
        state: What `model.state_dict()` gave.
        optimizer: Built on the model before; frozen parameters leave it and new ones take their place, so that a
            saved state of the optimizer fits afterwards.

    Raises:
        RekindleError: The state dict tells of a module that the model does not have, or a tensor of the model cannot
            be written. The model is as it was.
        RuntimeError: From `load_state_dict`, when names or shapes do not fit.

    Example:
        >>> import torch
        >>> import rekindle as rk
        >>> net, again = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 2))
        >>> record = rk.plasticity_injection_(net, head="0")
        >>> restore_(again, net.state_dict())
        >>> torch.equal(net(torch.ones(1, 3)), again(torch.ones(1, 3)))
        True
    """
    model, journal, optimizers = bare(model), Journal(), as_sequence(optimizer)
    try:
        for operation in _missing(model, state):
            carry_out(prepare([operation], model), model, optimizers, journal)
        for name, tensor in tensors_of(model).items():
            _keep(name, tensor, journal)  # torch loads what fits before it says that something does not
        model.load_state_dict(state)
    except BaseException:
        journal.roll_back()
        raise


def _keep(name: str, tensor: Tensor, journal: Journal) -> None:
    """Note the way back to a tensor's values by writing them over themselves.

    Raises:
        EditError: Torch cannot write it, or would load nothing into it, or not what the state dict says.
    """
    why = "on the meta device, without values" if tensor.is_meta else ""
    why = why or ("several of its elements share memory" if overlaps_itself(tensor) else "")
    why = why or (why_not_in_place(tensor) if tensor.is_nested and tensor.layout == torch.strided else "")
    try:
        if not why:
            journal.put(tensor, tensor)
            return
    except (RuntimeError, TypeError) as error:
        why = f"{why_not_in_place(tensor)} ({type(error).__name__} when it is written)"
    raise EditError(
        expected="tensors that values can be loaded into",
        got=f"{name}: {why}",
        fix="call model.to_empty(device=...) first if it is on the meta device; give an expanded tensor memory of its "
        "own (.contiguous()); nothing was changed",
    )


def _missing(model: nn.Module, state: Mapping[str, Tensor]) -> Iterator[Surgery]:
    """Yield what has to be put into the model; looked for after each step, because paths change."""
    for path in _injected(state):
        while _depth_of(submodule(model, path)) < _depth_in(state, path):
            again = f"{path}.new" if isinstance(model.get_submodule(path), Injected) else path
            names = tuple(name for name, _ in model.named_parameters() if name.startswith(f"{path}."))
            yield Surgery(path, Twins(again), names, "restore_")
    for name in state:
        path, _, leaf = f".{name}".rpartition(".")
        for side, (mean, _) in BUFFERS.items():
            if leaf == mean and not is_standardized(submodule(model, path[1:]), side):
                yield Surgery(path[1:], Standardize(0.0, 1.0, side), (), "restore_")


def _injected(state: Mapping[str, Tensor]) -> list[str]:
    """Return the paths below which a state dict has a frozen part, a new one and its twin; outermost only."""
    paths = sorted({name.partition(".new.")[0] for name in state if ".new." in name})
    return [path for path in paths if _depth_in(state, path)]


def _depth_in(state: Mapping[str, Tensor], path: str) -> int:
    depth = 0
    while all(any(n.startswith(f"{path}{'.frozen' * depth}.{part}.") for n in state) for part in PARTS):
        depth += 1
    return depth


def _depth_of(module: nn.Module) -> int:
    return 1 + _depth_of(module.frozen) if isinstance(module, Injected) else 0
