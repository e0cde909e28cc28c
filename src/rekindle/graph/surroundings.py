"""What a model and torch are like before we run something of ours, to be put back if that fails.

Every context of ours (a model at rest, a visit, a hook that listens) puts back what it changed. An interrupt may come
while it does so. Whoever calls on a user's behalf - a trace, a plan, a treatment, an audit - therefore keeps a picture
of the surroundings and puts them back as a whole.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _pop_mode

from rekindle.graph.garbage import switch_collector
from rekindle.graph.own_run import is_own_run, set_own_run
from rekindle.graph.quiet import printing, torch_loggers
from rekindle.graph.validation import put_back, switches

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_ABSENT = object()


class Surroundings:
    """The modes of torch and, if there is one, those of a model's modules with their hooks and buffers."""

    def __init__(self, model: nn.Module | None = None) -> None:
        """Take the picture."""
        self._back: list[Callable[[], Any]] = [*_modes()]
        for module in model.modules() if model is not None else ():
            self._back += _module(module)

    def restore(self) -> None:
        """Put everything back that is not as it was."""
        for back in self._back:
            back()


@contextlib.contextmanager
def restored_on_failure(model: nn.Module | None = None) -> Iterator[None]:
    """Put the surroundings back if what is run inside fails or is interrupted."""
    before = Surroundings(model)
    try:
        yield
    except BaseException:
        before.restore()
        raise


def _modes() -> Iterator[Callable[[], Any]]:
    yield partial(_pop_dispatch_modes, dispatch_modes())
    yield partial(_pop_function_modes, torch._C._len_torch_function_stack())
    yield partial(torch.set_grad_enabled, torch.is_grad_enabled())
    yield partial(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
    yield partial(_if_other, torch.get_num_threads, torch.set_num_threads, torch.get_num_threads())
    yield partial(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_initialized():
        yield partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    yield partial(_if_other, gc.isenabled, switch_collector, gc.isenabled())
    yield partial(_if_other, is_own_run, set_own_run, is_own_run())
    yield partial(_refilter, warnings.filters, list(warnings.filters))
    for logger in torch_loggers():
        yield partial(_put, logger.__dict__, "disabled", logger.disabled)
    yield partial(_put, printing(), "print", printing().get("print", _ABSENT))
    yield partial(put_back, switches())
    for name in ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp"):
        enabled = getattr(torch.backends.cuda, f"{name}_enabled")
        yield partial(getattr(torch.backends.cuda, f"enable_{name}"), enabled())
    dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")  # None: nothing was compiled, so it has no stance
    if dynamo is not None:
        yield partial(_if_other, lambda: dynamo._stance, dynamo._set_stance, dynamo._stance)


def _module(module: nn.Module) -> Iterator[Callable[[], Any]]:
    own = module.__dict__
    yield partial(_put, own, "training", module.training)
    yield partial(_put, own, "forward", own.get("forward", _ABSENT))
    for name, buffer in module._buffers.items():
        yield partial(_put, module._buffers, name, buffer)
    for kind in HOOKS:
        yield partial(_rehook, own[kind], dict(own[kind]))
    config: Any = getattr(module, "config", None)
    if hasattr(config, "use_cache"):
        yield partial(setattr, config, "use_cache", config.use_cache)


def dispatch_modes() -> int:
    """Return how many modes that look at every operation are in force."""
    return int(torch._C._len_torch_dispatch_stack())


def _pop_dispatch_modes(count: int) -> None:
    while dispatch_modes() > count:
        _pop_mode()


def _pop_function_modes(count: int) -> None:
    while torch._C._len_torch_function_stack() > count:
        torch._C._pop_torch_function_stack()


def _if_other(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> None:
    if read() != value:
        write(value)


def _put(held: MutableMapping[str, Any], name: str, value: Any) -> None:
    if value is _ABSENT:
        held.pop(name, None)
    elif held.get(name) is not value:
        held[name] = value


def _rehook(hooks: MutableMapping[int, Any], before: dict[int, Any]) -> None:
    """Take out hooks that came in; handles know the dict itself, so that it stays."""
    if list(hooks.items()) != list(before.items()):
        hooks.clear()
        hooks.update(before)


def _refilter(filters: Any, before: list[Any]) -> None:
    if warnings.filters is not filters or filters != before:
        filters[:] = before
        warnings.filters = filters
        with warnings.catch_warnings():
            """Entering and leaving renews what Python remembers of filters."""
