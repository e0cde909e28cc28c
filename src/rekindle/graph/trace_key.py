"""Everything that a trace depends on: the key under which it is remembered.

Two equal keys mean two equal traces, but for what cannot be seen from the model and the example: globals that a
function reads, files, the environment. `graph.fingerprint` answers another question, whether a model is made of the
very same objects, at the cost of a step of training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_modules
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from rekindle.graph.facts import HOOKS, Facts, Unseen, hooks
from rekindle.graph.facts import model as look_at_model
from rekindle.graph.surroundings import dispatch_modes

Key = list[Any]


def trace_key(model: nn.Module, example: Any) -> Key | None:
    """Return the key of a trace, or None where something cannot be seen: the model is then traced each time.

    Args:
        model: The model without its wrappers; it is not changed, and no code of it is run.
        example: Input for the model; of its tensors shapes and types count, not their values.

    Example:
        >>> net = nn.Linear(2, 2)
        >>> before = trace_key(net, torch.zeros(1, 2))
        >>> _ = net.weight.data.add_(1)
        >>> before == trace_key(net, torch.ones(1, 2)), before == trace_key(net, torch.zeros(3, 2))
        (True, False)
    """
    try:
        return _key(model, example)
    except Exception:  # whatever a model holds that we do not know: a key is for speed alone
        return None


def _key(model: nn.Module, example: Any) -> Key:
    facts = Facts()
    _modes(facts)
    look_at_model(facts, model)
    facts.values = False
    facts.look(example)
    return facts.found


def _modes(facts: Facts) -> None:
    """Look at what is in force for all of torch."""
    around = _get_current_function_mode_stack()
    if dispatch_modes() or any(type(mode) is not DeviceContext for mode in around):
        raise Unseen("a mode that may change every operation")
    facts.found += [mode.device for mode in around]
    facts.found += [torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
    facts.found += [torch.are_deterministic_algorithms_enabled(), parametrize._cache_enabled]
    for device in ("cpu", "cuda"):
        facts.found += [torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)]
    for name in ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp"):
        facts.found.append(getattr(torch.backends.cuda, f"{name}_enabled")())
    for name in HOOKS:
        hooks(facts, name, getattr(torch_modules, f"_global{name}"))
