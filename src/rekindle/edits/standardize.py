"""Put a fixed normalization before or after a module, or update the one that is there."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from rekindle.edits.compiler import reset_compiler
from rekindle.edits.inserted import BUFFERS, HOOKS, is_standardized
from rekindle.edits.surgery import Standardize
from rekindle.edits.write import Journal


def standardize(module: nn.Module, put: Standardize, model: nn.Module, journal: Journal) -> None:
    """Normalize what a module reads or gives by (x - mean) / std.

    Each step back is noted before its change and does nothing where the change did not happen, so that an interrupt
    between any two lines can be rolled back.

    Args:
        module: Where it is put.
        put: The two numbers and the side.
        model: The model that the module is part of; type and device come from it where the module has no parameters.
        journal: Gets the way back, and the two buffers to watch.
    """
    values = dict(zip(BUFFERS[put.side], (put.mean, put.std), strict=True))
    if is_standardized(module, put.side):
        _update(module, values, journal)
    else:
        _insert(module, put, values, model, journal)
    for name in values:
        journal.watch(getattr(module, name))


def _update(module: nn.Module, values: dict[str, float], journal: Journal) -> None:
    for name, value in values.items():
        buffer = getattr(module, name)
        journal.note(partial(buffer.fill_, buffer.item()))
        buffer.fill_(value)


def _insert(module: nn.Module, put: Standardize, values: dict[str, float], model: nn.Module, journal: Journal) -> None:
    journal.note(reset_compiler)  # the last step back
    like = next((t for m in (module, model) for t in m.parameters() if t.is_floating_point()), torch.zeros(()))
    for name, value in values.items():
        journal.note(partial(module._buffers.pop, name, None))
        module.register_buffer(name, torch.tensor(value, dtype=like.dtype, device=like.device))
    hook = HOOKS[put.side]()
    journal.note(partial(_remove, module, hook))
    if put.side == "before":
        module.register_forward_pre_hook(hook, prepend=True)  # who else looks at the input sees what is read
    else:
        module.register_forward_hook(hook)  # type: ignore[arg-type]
    reset_compiler()


def _remove(module: nn.Module, hook: object) -> None:
    """Take a hook out by what it is: its handle is not known before it has been put in."""
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        for number in [number for number, other in hooks.items() if other is hook]:
            del hooks[number]
