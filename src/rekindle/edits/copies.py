"""Networks that follow others - target networks, moving averages - and what becomes of them in a treatment.

A follower is never drawn on its own. It is copied from what it follows once that is treated, or treated alike: by the
same edits with the same draws, on its own values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.errors import PlanError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import submodule, tensors_of
from rekindle.graph.plain import shapes_of

Copies = Mapping[str, str | tuple[str, str]]
"""Path of a follower to the path of what it follows, or to that and "alike"."""

HOW = "copies={'target': 'online'} to have it copied, or {'target': ('online', 'alike')} to have it treated alike"


@dataclass(frozen=True)
class Follower:
    """One network that follows another, tensor by tensor."""

    path: str
    leader: str
    alike: bool
    tensors: Mapping[str, str]  # the follower's names to the leader's


def followers(copies: Copies | None, model: Any) -> tuple[Follower, ...]:
    """Check what was said about copies.

    Raises:
        PlanError: A path is not there, or the two are not of the same names and shapes, or one follows a follower.
    """
    if not copies:
        return ()
    if not isinstance(model, nn.Module):
        raise PlanError(
            expected="a live model beside copies=, which are told by the paths of modules",
            got=f"a {type(model).__name__}",
            fix="treat the model itself, or copy the tensors of your state dict yourself afterwards",
        )
    return tuple(_follower(path, told, model, copies) for path, told in copies.items())


def _follower(path: str, told: Any, model: nn.Module, copies: Copies) -> Follower:
    leader, how = told if isinstance(told, (tuple, list)) and len(told) == 2 else (told, "recopied")
    if not isinstance(leader, str) or how not in ("recopied", "alike"):
        raise PlanError(expected=f"copies as in {HOW}", got=f"{path!r}: {told!r}", fix="name one module for each")
    if leader in copies or leader == path or f"{leader}.".startswith(f"{path}."):
        raise PlanError(
            expected=f"{path} to follow a network that follows no other",
            got=repr(leader),
            fix="name the trained network",
        )
    mine, theirs = (tensors_of(submodule(model, each)) for each in (path, leader))
    if shapes_of(mine) != shapes_of(theirs):
        odd = sorted(set(shapes_of(mine).items()) ^ set(shapes_of(theirs).items()))
        raise PlanError(
            expected=f"{path} with the names and shapes of {leader}",
            got=f"a difference at {odd[0][0]} and {len(odd) - 1} more" if odd else "other names",
            fix="name the two modules that are the same network",
        )
    names = {f"{path}.{name}": f"{leader}.{name}" for name in mine}
    return Follower(path, leader, how == "alike", names)


def led(content: Edits, found: Sequence[Follower]) -> Edits:
    """Return a plan in which followers do as they are led: no edit of their own, the leader's where treated alike.

    Raises:
        PlanError: The structure of one of the two would change, and the other could not follow.
    """
    if not found:
        return content
    _refuse_surgery(content, found)
    own = {name for each in found for name in each.tensors}
    edits = [edit for edit in content.edits if edit.tensor not in own]
    skips = [skip for skip in content.skips if skip.tensor.partition("[")[0] not in own]
    for each in (follower for follower in found if follower.alike):
        mine = {leader: name for name, leader in each.tensors.items()}
        edits += [
            replace(edit, tensor=mine[edit.tensor], reads=tuple(mine.get(name, name) for name in edit.reads))
            for edit in edits
            if edit.tensor in mine
        ]
        touched = {edit.tensor for edit in edits}
        skips += [
            Skip(name, f"treated alike with {leader}, which stays")
            for leader, name in mine.items()
            if name not in touched
        ]
    return replace(content, edits=tuple(edits), skips=tuple(skips))


def _refuse_surgery(content: Edits, found: Sequence[Follower]) -> None:
    for operation in content.surgery:
        for each in found:
            if any(f"{operation.module}.".startswith(f"{path}.") for path in (each.path, each.leader)):
                raise PlanError(
                    expected=f"{each.path} to be able to follow {each.leader}",
                    got=f"a change of structure at {operation.module}",
                    fix=f"treat it without copies=, and set {each.path} to copy.deepcopy of {each.leader} afterwards",
                )


class CopyLink:
    """The last link of a treatment with copies: followers become what they follow, also where they are frozen."""

    key = "copies"

    def __init__(self, found: Sequence[Follower]) -> None:
        self.found = tuple(each for each in found if not each.alike)

    def __str__(self) -> str:
        """Return what it is."""
        return "copies"

    def edits(self) -> Edits:
        """Return the edits that copy."""
        return Edits(
            tuple(
                Edit(name, _taken, f"copy of {leader}", reads=(leader,), computes=False)
                for each in self.found
                for name, leader in each.tensors.items()
            )
        )


def _taken(old: Tensor, leader: Tensor) -> Tensor:
    return leader.to(old, copy=True)


def lookalikes(
    model: nn.Module, graph: UnitGraph, optimizers: Sequence[Any], known: Sequence[Follower]
) -> tuple[str, ...]:
    """Return words about submodules that look like copies of others and were not named as such.

    Such a one has the names and shapes of another, and is outside the forward pass or in no optimizer.
    """
    held = {id(p) for each in optimizers for group in each.param_groups for p in group["params"]}
    named = {path for each in known for path in (each.path, each.leader)}
    found: dict[str, str] = {}
    for alike in _alike(model):
        idle = {path: why for path, module in alike if (why := _idle(path, module, graph, held))}
        busy = [path for path, _ in alike if path not in idle]
        for path, why in idle.items():
            if busy and path not in named and not any(path.startswith(f"{other}.") for other in (*found, *named)):
                found[path] = (
                    f"{path} has the names and shapes of {busy[0]} and is {why}: if it is a copy that follows it (a "
                    f"target network, an average), pass copies={{{path!r}: {busy[0]!r}}}"
                )
    return tuple(found.values())  # modules come before their parts, which are not told again


def has_lookalikes(model: nn.Module) -> bool:
    """Tell whether a model has submodules with the names and shapes of others, one of which may be a copy."""
    return any(True for _ in _alike(model))


def _alike(model: nn.Module) -> Iterator[list[tuple[str, nn.Module]]]:
    """Yield sets of submodules with the same names and shapes; blocks of one stack are no copies of each other."""
    sets: dict[Any, list[tuple[str, nn.Module]]] = {}
    for path, module in model.named_modules():
        shapes = shapes_of(dict(module.named_parameters())) if path else {}
        if any(len(shape) > 1 for shape in shapes.values()) and len(shapes) > 1:
            sets.setdefault(tuple(shapes.items()), []).append((path, module))
    for alike in sets.values():
        if len(alike) > 1 and len({_without_numbers(model, path) for path, _ in alike}) > 1:
            yield alike


def _without_numbers(model: nn.Module, path: str) -> str:
    """Return a path with a star for each number in a list, by which blocks of one stack are told from others."""
    parts = path.split(".")
    owners = [model.get_submodule(".".join(parts[:depth])) for depth in range(len(parts))]
    lists = (nn.ModuleList, nn.Sequential)
    return ".".join("*" if isinstance(owner, lists) else part for owner, part in zip(owners, parts, strict=True))


def _idle(path: str, module: nn.Module, graph: UnitGraph, held: set[int]) -> str:
    names = [f"{path}.{name}" for name, _ in module.named_parameters()]
    if graph.traced and all(name in graph.outside for name in names):
        return "outside the forward pass"
    return "in no optimizer" if held and not any(id(p) in held for p in module.parameters()) else ""
