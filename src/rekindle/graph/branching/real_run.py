"""One real run of a model, written down call by call: which module was given what, and what it returned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from rekindle.graph.forwards import forwards_replaced
from rekindle.graph.modules import call_with, tensors_of
from rekindle.seeds import global_seed

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addbmm")  # what torch makes of matmul, einsum and linear


@dataclass(eq=False)
class ModuleCall:
    """One call of one module's forward pass."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    parent: ModuleCall | None
    output: Any = None
    inner: list[ModuleCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Tell the caller."""
        if self.parent is not None:
            self.parent.inner.append(self)

    def all(self) -> Iterator[ModuleCall]:
        """Yield this call and all calls within, in order."""
        yield self
        for call in self.inner:
            yield from call.all()

    def above(self) -> Iterator[ModuleCall]:
        """Yield this call and those that it stands in, from the inside out."""
        yield self
        if self.parent is not None:
            yield from self.parent.above()

    @property
    def way(self) -> tuple[Any, ...]:
        """How the module was called: structure, dimensions and types of its arguments, values of those not tensors."""
        leaves, structure = pytree.tree_flatten((self.args, self.kwargs))
        told = [(x.ndim, x.dtype) if isinstance(x, Tensor) else repr(x) for x in leaves]
        return (str(structure), *told)


@dataclass(eq=False)
class RealRun:
    """What was written down.

    Args:
        start: The call of the model itself.
        smuggled: Calls (made in, used in) of tensors that went from one to the other neither as argument nor as
            result: by way of an attribute, a global, a closure.
        used: For each parameter or buffer the calls whose own code used it.
        products: Calls whose own code multiplied two activations: perhaps queries and keys.
    """

    start: ModuleCall
    smuggled: list[tuple[ModuleCall, ModuleCall]]
    used: dict[str, list[ModuleCall]]
    products: list[ModuleCall] = field(default_factory=list)

    def calls_of(self, module: nn.Module, within: ModuleCall | None = None) -> list[ModuleCall]:
        """Return the calls of a module, in order."""
        return [call for call in (within or self.start).all() if call.module is module]


def record(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RealRun:
    """Run a model at rest on copies of its buffers, and write down every call; see `export.at_rest`."""
    origins = _Origins()
    origins.know(tensors_of(model))
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    origins.know(buffers)
    with torch.no_grad(), global_seed(0, "forward", "trace"), _listening(model, origins), origins:
        call_with(model, buffers, args, kwargs)
    assert origins.start is not None
    return RealRun(origins.start, origins.smuggled, origins.used, origins.products)


class _Origins(TorchDispatchMode):
    """Knows for each tensor of a run in which call it was made, and notes who uses what was not given to it.

    Tensors that come from constants alone (positions, masks, tables) carry nothing and may be kept anywhere.
    """

    def __init__(self) -> None:
        super().__init__()
        self.start: ModuleCall | None = None
        self.now: ModuleCall | None = None
        self.smuggled: list[tuple[ModuleCall, ModuleCall]] = []
        self.used: dict[str, list[ModuleCall]] = {}
        self.products: list[ModuleCall] = []
        self._made: Any = WeakIdKeyDictionary()
        self._data: Any = WeakIdKeyDictionary()  # what comes from the example
        self._stored: dict[int, list[str]] = {}
        self._trained: set[int] = set()

    def know(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if tensor.layout == torch.strided:
                self._stored.setdefault(tensor.untyped_storage()._cdata, []).append(name)
                if isinstance(tensor, nn.Parameter):
                    self._trained.add(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        carries = [self._use(tensor) for tensor in _tensors((args, kwargs))]
        data = [tensor for tensor in _tensors((args, kwargs)) if tensor in self._data]
        if self.now is not None and len(data) > 1 and _is_product(function):
            self.products.append(self.now)
        result = function(*args, **(kwargs or {}))
        for tensor in _tensors(result) if any(carries) else ():
            if tensor not in self._made:
                self._made[tensor] = self._home(tensor)
            if data:
                self._data[tensor] = True
        return result

    def _use(self, tensor: Tensor) -> bool:
        """Note a use; tell whether the tensor comes from the example or from parameters."""
        if self.now is None:
            return False
        stored = tensor.untyped_storage()._cdata if tensor.layout == torch.strided else None
        for name in self._stored.get(stored, ()) if stored is not None else ():
            self.used.setdefault(name, []).append(self.now)
        self._ask(tensor, self.now)
        return stored in self._trained or tensor in self._made

    def _ask(self, tensor: Tensor, call: ModuleCall) -> None:
        """Note a tensor that a call has, and neither made nor was given."""
        made = self._made.get(tensor)
        if made is not None and made is not call and not _is_given(call, tensor):
            self.smuggled.append((made, call))

    def _home(self, tensor: Tensor) -> ModuleCall | None:
        """Return the call that a result belongs to: what was written in place, to the one that gave it."""
        home = self.now
        while home is not None and home.parent is not None and _is_given(home, tensor):
            home = home.parent
        return home

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModuleCall:
        if self.now is not None:
            for tensor in _tensors((args, kwargs)):
                self._ask(tensor, self.now)
        self.now = ModuleCall(module, args, kwargs, self.now)
        if self.start is None:
            self.start = self.now
            for tensor in _tensors((args, kwargs)):
                self._made[tensor] = self.now
                self._data[tensor] = True
        return self.now

    def leave(self, call: ModuleCall, output: Any) -> None:
        call.output = output
        self.now = call.parent
        for tensor in _tensors(output):
            self._ask(tensor, call)
            if self._made.get(tensor) is call and call.parent is not None:
                self._made[tensor] = call.parent


@contextlib.contextmanager
def _listening(model: nn.Module, origins: _Origins) -> Iterator[None]:
    """Stand before every forward pass; a hook would not see what other hooks do, and not `module.forward(x)`."""
    modules = [m for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)]
    with forwards_replaced([(module, _noted(module, module.forward, origins)) for module in modules]):
        yield


def _noted(module: nn.Module, forward: Callable[..., Any], origins: _Origins) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        call = origins.enter(module, args, kwargs)
        output = None
        try:
            output = forward(*args, **kwargs)
        finally:
            origins.leave(call, output)
        return output

    return noted


def _is_product(function: Any) -> bool:
    name = function.overloadpacket.__name__
    return name in PRODUCTS or "scaled_dot_product" in name


def _is_given(call: ModuleCall, tensor: Tensor) -> bool:
    return any(given is tensor for given in _tensors((call.args, call.kwargs)))


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
