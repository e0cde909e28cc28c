"""What is put around a model for speed, for several processes or for a trainer, and what is inside."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from rekindle.errors import GraphError
from rekindle.graph.forwards import forwards_replaced
from rekindle.graph.names import WRAPPED, canonical
from rekindle.graph.own_run import own_run

CHECKPOINTED = "_checkpoint_wrapped_module"
SHARDED = ("DTensor", "ShardedTensor", "FlatParameter")  # classes of tensors of which a process holds a part
FIX = (
    "treat the model before it is sharded, or gather it (full_tensor() of each tensor, or a full state dict by "
    "torch.distributed.checkpoint.state_dict), treat that, and load it into the sharded model"
)


def bare(model: nn.Module) -> nn.Module:
    """Return the model inside its wrappers, or refuse it where its parameters are sharded.

    Every public function that takes a model begins with this call. It takes off torch.compile,
    DistributedDataParallel, DataParallel, and a LightningModule with one child that holds all parameters and buffers,
    whose forward pass hands its arguments on to that child and does nothing else.

    Args:
        model: A model, wrapped or not; it is not changed.

    Raises:
        GraphError: Parameters or buffers are DTensors (FSDP2's `fully_shard`, tensor parallelism) or FSDP1's: what a
            process sees of them is a part, whose norms and draws are not those of the tensor. Or those of a lazy layer
            are not initialized.

    Example:
        >>> import torch
        >>> net = nn.Linear(2, 2)
        >>> bare(torch.compile(net)) is net
        True
    """
    for path, module in model.named_modules():
        if _is_a(module, "FullyShardedDataParallel"):
            raise _refusal(f"FullyShardedDataParallel{f' at {canonical(path)}' if canonical(path) else ''}")
    inner = unwrapped(model)
    refuse_sharded(dict(_tensors(inner)))
    return inner


def refuse_sharded(tensors: Mapping[str, object]) -> None:
    """Refuse tensors that are not all there: this process holds a part only, or a lazy layer has not made them yet.

    Args:
        tensors: A state dict, or parameters and buffers, by name.

    Raises:
        GraphError: One of them is a DTensor, a ShardedTensor or the flat parameter of FSDP1, or is not initialized.
    """
    found = [f"{name} ({kind})" for name, tensor in tensors.items() if (kind := _is_a(tensor, *SHARDED))]
    if found:
        raise _refusal(_some(found))
    lazy = [name for name, tensor in tensors.items() if isinstance(tensor, Tensor) and is_lazy(tensor)]
    if lazy:
        raise GraphError(
            expected="parameters that are initialized",
            got=f"not yet: {_some(lazy)}, of a lazy layer that has seen no batch",
            fix="run a batch first, model(batch): its shape tells the layer its own",
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside its wrappers as `bare` does, sharded or not."""
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def is_distributed(model: nn.Module) -> bool:
    """Tell whether DistributedDataParallel is among what is around a model."""
    around: nn.Module | None = model
    while around is not None and not isinstance(around, DistributedDataParallel):
        around = _inside(around)
    return around is not None


def inside(part: nn.Module) -> nn.Module:
    """Return what is inside the wrappers that a part of a model has for itself: compiled, or checkpointed."""
    while (inner := _wrapped(part)) is not None:
        part = inner
    return part


@contextlib.contextmanager
def as_written(model: nn.Module) -> Iterator[None]:
    """Let compiled and checkpointed parts of a model run as they are written, for the time of the context.

    Hooks are then called, all bits are eager's, and second derivatives work. It is a run of ours (`graph.own_run`).
    """
    compiled = any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in model.modules())
    checkpointed = [m for m in model.modules() if CHECKPOINTED in m._modules and "forward" not in m.__dict__]
    eager = torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext()
    with forwards_replaced([(m, m.get_submodule(CHECKPOINTED)) for m in checkpointed]), own_run(), eager:
        yield


def _inside(model: nn.Module) -> nn.Module | None:
    if (inner := _wrapped(model)) is not None:
        return inner
    if isinstance(model, (DistributedDataParallel, nn.DataParallel)):
        return model.module
    child = _only_child(model) if _is_a(model, "LightningModule") else None
    return child if child is not None and hands_on(model, child) else None


def _wrapped(part: nn.Module) -> nn.Module | None:
    return next((part._modules[name] for name in WRAPPED if name in part._modules), None)


def _only_child(model: nn.Module) -> nn.Module | None:
    """Return the child that holds all parameters and buffers of a model, if there is one."""
    every = {id(tensor) for _, tensor in _tensors(model)}
    if not every:
        return None
    holders = [child for child in model.children() if any(True for _ in _tensors(child))]
    return holders[0] if len(holders) == 1 and every == {id(tensor) for _, tensor in _tensors(holders[0])} else None


def hands_on(model: nn.Module, child: nn.Module) -> bool:
    """Tell whether a model's forward pass gives its arguments to a child as they are, and the result back as it is.

    A copy of the outermost module is run with something that nothing can be computed with. A model without a forward
    pass of its own has nothing to lose.
    """
    if type(model).forward in (nn.Module.forward, _unimplemented_by(model)):
        return True
    seen: list[tuple[Any, ...]] = []
    result = object()

    class Probe(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            seen.append((*args, *kwargs.values()))
            return result

    try:
        taken = inspect.signature(model.forward).parameters.values()
        given = [object() for each in taken if each.default is each.empty and each.kind not in (each.VAR_KEYWORD,)]
        twin = copy.copy(model)
        twin.__dict__["_modules"] = {n: Probe() if m is child else m for n, m in model._modules.items()}
        returned = type(model).forward(twin, *given)
    except Exception:  # it computes something
        return False
    return returned is result and len(seen) == 1 and list(map(id, seen[0])) == list(map(id, given))


def _unimplemented_by(model: nn.Module) -> Any:
    """Return the forward pass that LightningModule itself has, which only refuses."""
    bases = [cls for cls in type(model).__mro__ if cls.__name__ == "LightningModule"]
    return bases[0].__dict__.get("forward") if bases else None


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _is_a(item: object, *classes: str) -> str:
    """Return the first of the classes that an object is of, by name: their packages need not be installed."""
    return next((cls.__name__ for cls in type(item).__mro__ if cls.__name__ in classes), "")


def _refusal(got: str) -> GraphError:
    return GraphError(expected="a model or a state dict with whole tensors", got=f"sharded: {got}", fix=FIX)
