"""Where the output of a module goes: through which activation, into which modules, and where it cannot be told.

The model is run once on a batch. Every operation is looked at while it happens, so that functional calls and modules
that stand at several places need no special knowledge. Hooks are always removed; nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from rekindle.graph.export import at_rest
from rekindle.graph.modules import main_output, modules_of, submodule
from rekindle.graph.operations.elementwise import FILLED, GATE, SAME_TENSOR, SUM, ZEROS
from rekindle.graph.operations.mixing import SPATIAL
from rekindle.graph.operations.rearrange import MOVE, PERMUTE, VIEW
from rekindle.observe.outputs import buffers_of, check_called, run

DROPOUT = "dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout".split()
PADDING = "constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d".split()
# What hands values on as they are, or pooled, on their way from an activation to the layer that reads them.
CARRIED = {*SAME_TENSOR, *PERMUTE, *VIEW, *MOVE, *SPATIAL, *DROPOUT, *PADDING}
CARRIED |= set("mean sum amax max neg cat stack as_strided unsafe_split unsafe_chunk".split())
LINEAR = {*SUM, *GATE}  # with a number, or a tensor of one element
SHAPE_ONLY = {*ZEROS, *FILLED}  # a first state of zeros
PRODUCTS = set("mm addmm bmm baddbmm addbmm mv addmv dot matmul linear einsum convolution embedding".split())


@dataclass(frozen=True, eq=False)
class Consumers:
    """Where the output of a module goes.

    Attributes:
        outputs: What the module gave, one tensor for each call of it.
        activated: Whether all that follows sees it after an activation that is not part of the module.
        readers: Paths of the modules that are given it after that activation, pooled or reshaped on the way perhaps.
        inputs: What they are given, each tensor once.
        elsewhere: Other places that use it, where no module could be told: an addition, a product, the model's output.
        weighted: Whether a weight is applied to anything that depends on it; not so for logits.
        beside: Whether something uses what the module gives beside its output: the last states of a recurrent layer.
    """

    outputs: tuple[Tensor, ...]
    activated: bool
    readers: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    elsewhere: tuple[str, ...]
    weighted: bool
    beside: bool = False


def consumers_of(model: nn.Module, path: str, batch: Any, replaced: Mapping[str, Tensor]) -> Consumers:
    """Return what a submodule hands on for a batch, and who takes it in.

    Dropout is off. BatchNorm uses the batch's own statistics, as in the training that follows: the running ones belong
    to the weights as they were, not to those in `replaced`. A fixed normalization after the submodule, or before a
    reader, is not in the values.

    Args:
        model: The model; it is left as it was.
        path: The submodule.
        batch: Input for the model, as an example for `trace`.
        replaced: Values to use instead of the model's own, by name.
    """
    follower = _Follower({module: name for name, module in modules_of(model).items()}, submodule(model, path))
    own = {name: buffer.clone() for name, buffer in buffers_of(model)}  # BatchNorm writes into these
    with at_rest(model), torch.no_grad(), _hooked(model, follower), follower:
        for module in model.modules():
            module.training = isinstance(module, _BatchNorm)
        result = run(model, {**own, **replaced}, batch)
    check_called(path, follower.outputs)
    follower.leave(result)
    return follower.found()


@dataclass(eq=False)
class _Follower(TorchDispatchMode):
    """Marks what comes from the followed module alone, and notes where that ends.

    Marked tensors are held until the end, so that no other one can have their id.
    """

    names: Mapping[nn.Module, str]
    followed: nn.Module
    outputs: list[Tensor] = field(default_factory=list)
    marked: dict[int, tuple[Tensor, bool]] = field(default_factory=dict)  # of it alone; whether after an activation
    derived: dict[int, Tensor] = field(default_factory=dict)  # depends on it in another way
    within: nn.Module | None = None  # the reader that is running: what happens inside is its own affair
    calls: dict[str, int] = field(default_factory=dict)
    readings: list[tuple[str, bool]] = field(default_factory=list)
    inputs: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    uses: list[tuple[str, bool]] = field(default_factory=list)
    weighted: bool = False
    beside: dict[int, Tensor] = field(default_factory=dict)  # what the followed module gives beside its output
    uses_beside: bool = False
    at_work: bool = False  # the followed module is running: what it is given again, as a cell its state, is its own

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and mark its results."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        self._note(name, list(_tensors((args, kwargs))), list(_tensors(result)))
        return result

    def _note(self, name: str, given: list[Tensor], results: list[Tensor]) -> None:
        marked = [x for x in given if id(x) in self.marked]
        if name in SHAPE_ONLY:
            return
        self._look_beside(given)
        if not marked and not any(id(x) in self.derived for x in given):
            return
        self.weighted |= name in PRODUCTS
        alone = bool(marked) and all(id(x) in self.marked or x.numel() == 1 for x in given)
        activation = _activation(name, marked, results) if alone else None
        activated = all(self.marked[id(x)][1] for x in marked)
        if self.within is not None or activation is None:
            if marked and self.within is None:
                self.uses.append((name, activated))
            self.derived.update({id(x): x for x in results})
        else:
            self.marked.update({id(x): (x, activated or activation) for x in results})

    def _look_beside(self, given: list[Tensor]) -> None:
        self.uses_beside |= not self.at_work and any(id(x) in self.beside for x in given)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call of a module: is it a reader?"""
        self.at_work |= module is self.followed
        path = self.names[module]
        self.calls[path] = self.calls.get(path, 0) + 1
        given = list(_tensors((args, kwargs)))
        marked = [x for x in given if id(x) in self.marked]
        owner = _has_parameters(module, recurse=False)
        self.weighted |= owner and any(id(x) in self.marked or id(x) in self.derived for x in given)
        if self.within is not None or not marked:
            return
        activated = all(self.marked[id(x)][1] for x in marked)
        if owner or (activated and _has_parameters(module) and not isinstance(module, nn.Sequential)):
            self.within = module
            self._read(path, args, marked, activated)

    def _read(self, path: str, args: tuple[Any, ...], marked: list[Tensor], activated: bool) -> None:
        if len(marked) > 1 or not args or args[0] is not marked[0]:
            self.uses.append((f"{path}, which is not given it as its first argument alone", activated))
            return
        self.readings.append((path, activated))
        key = (id(args[0]), args[0]._version)
        if activated and key not in self.inputs:
            self.inputs[key] = args[0].clone()

    def exit(self, module: nn.Module, output: Any) -> None:
        """Note what a module gave."""
        if self.within is module:
            self.within = None
        if module is self.followed:
            main = main_output(output)
            self.outputs.append(main.clone())
            self.marked[id(main)] = (main, False)
            self.beside.update({id(x): x for x in _tensors(output) if x is not main})
            self.at_work = False
            if self.within is not None:
                self.uses.append((f"{self.names[self.within]}, inside of which it is called again", True))

    def leave(self, result: Any) -> None:
        """Note what the model gives."""
        self._look_beside(list(_tensors(result)))
        self.uses += [("the model's output", self.marked[id(x)][1]) for x in _tensors(result) if id(x) in self.marked]

    def found(self) -> Consumers:
        """Return what was found."""
        paths = [path for path, _ in self.readings]
        readers = tuple(dict.fromkeys(paths))
        mixed = [f"{path}, which also reads something else" for path in readers if self.calls[path] > paths.count(path)]
        flags = [activated for _, activated in (*self.readings, *self.uses)]
        elsewhere = tuple(dict.fromkeys((*(use for use, _ in self.uses), *mixed)))
        activated = bool(flags) and all(flags)
        inputs = tuple(self.inputs.values())
        return Consumers(tuple(self.outputs), activated, readers, inputs, elsewhere, self.weighted, self.uses_beside)


def _activation(name: str, marked: list[Tensor], results: list[Tensor]) -> bool | None:
    """Tell whether an operation on marked tensors alone is an activation; None where it is something unknown."""
    if name in CARRIED or (name in LINEAR and (len(marked) == 1 or name in SUM)):
        return False
    same = bool(results) and results[0].shape == marked[0].shape
    return True if same or name == "glu" else None


def _has_parameters(module: nn.Module, *, recurse: bool = True) -> bool:
    """Tell whether a module has parameters: of its own, where not recursive; a parametrized weight is its own."""
    if any(True for _ in module.parameters(recurse=recurse)):
        return True
    return isinstance(getattr(module, "parametrizations", None), nn.ModuleDict)


def _tensors(tree: Any) -> Iterable[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


@contextmanager
def _hooked(model: nn.Module, follower: _Follower) -> Iterator[None]:
    """Tell the follower of each call, before any other hook changes what is given and after nothing has."""

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        follower.enter(module, args, kwargs)

    def after(module: nn.Module, args: Any, output: Any) -> None:
        follower.exit(module, output)

    handles: list[Any] = []
    put: Callable[[Any], None] = handles.append
    try:
        for module in follower.names:
            put(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
            put(module.register_forward_hook(after, prepend=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
