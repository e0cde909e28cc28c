"""What an optimizer keeps of a parameter, by what it means, and what becomes of it when the parameter is edited.

A tensor that is edited whole begins again: its state is dropped, and the optimizer makes a new one, step counter and
all. A tensor that is edited in part keeps its state; the entries of the edited elements become what they are at the
start, and `edits.renewal` sees to what a step counter means for them. Optimizers that mix entries begin again for the
whole tensor, LBFGS for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.edits.renewal import corrects, renew
from rekindle.edits.write import Journal
from rekindle.errors import EditError
from rekindle.text import counted

OptimizerState = Literal["keep", "drop"]
Start = Callable[[Tensor, Mapping[str, Any]], Tensor | float]
"""From the parameter's new value and its group to what an entry of the state is at the start."""


def _zero(value: Tensor, group: Mapping[str, Any]) -> float:
    return 0.0


def _weights(value: Tensor, group: Mapping[str, Any]) -> Tensor:
    return value


def _rate(value: Tensor, group: Mapping[str, Any]) -> float:
    return float(group["lr"])


def _given(value: Tensor, group: Mapping[str, Any], begin: float) -> float:
    return begin


def _accumulated(value: Tensor, group: Mapping[str, Any]) -> float:
    return float(group.get("initial_accumulator_value", 0.0))


@dataclass(frozen=True)
class Meaning:
    """What the state of a kind of optimizer means.

    Attributes:
        entries: State with one entry for each element of the parameter, and how it begins.
        others: Further names that may be in the state: step counters and the like.
        begins_again: How far an edit of a few elements reaches: they alone, the whole tensor, or all tensors.
        shared: Counters that stand in the group, for all its parameters, and how they begin.
        lazy: Whether the optimizer makes the state of a parameter when it first needs it.
    """

    entries: Mapping[str, Start] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    begins_again: Literal["elements", "tensor", "all"] = "elements"
    shared: Mapping[str, Any] = field(default_factory=dict)
    lazy: bool = True

    def knows(self, key: str) -> bool:
        """Tell whether a name of the state is one of this kind's."""
        return key in self.entries or key in self.others


def _meaning(entries: str, others: str = "step", **special: Start) -> Meaning:
    return Meaning(dict.fromkeys(entries.split(), _zero) | special, frozenset(others.split()))


_ADAM = _meaning("exp_avg exp_avg_sq max_exp_avg_sq")
_AVERAGED = Meaning(  # schedule-free: z is the weights themselves, and the step counter is the group's
    {"z": _weights, "exp_avg_sq": _zero}, shared={"k": 0, "weight_sum": 0.0, "lr_max": -1.0}
)
_FUSED_SGD = replace(_meaning("momentum_buffer"), lazy=False)  # it cannot do with a buffer for some parameters only
_ROWS = "step row_var col_var variance exp_avg_sq_row exp_avg_sq_col exp_avg_sq exp_avg RMS"
_CODES = Meaning(begins_again="tensor")  # 8 bits: blocks of entries share a scale, and zero is the lowest code

KNOWN: dict[str, Meaning] = {
    "SGD": _meaning("momentum_buffer"),
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "NAdam": _meaning("exp_avg exp_avg_sq", "step mu_product"),
    "RAdam": _meaning("exp_avg exp_avg_sq"),
    "Adamax": _meaning("exp_avg exp_inf"),
    "RMSprop": _meaning("square_avg momentum_buffer grad_avg"),
    "Adagrad": replace(_meaning("", sum=_accumulated), lazy=False),
    "Adadelta": _meaning("square_avg acc_delta"),
    "Rprop": _meaning("prev", step_size=_rate),
    "ASGD": _meaning("", "step eta mu", ax=_weights),
    "Lion": _meaning("exp_avg"),
    "AdamWScheduleFree": _AVERAGED,
    "RAdamScheduleFree": _AVERAGED,
    "SGDScheduleFree": _AVERAGED,
    "Adafactor": Meaning(others=frozenset(_ROWS.split()), begins_again="tensor"),
    "Muon": Meaning(others=frozenset({"momentum_buffer"}), begins_again="tensor"),
    "LBFGS": Meaning(
        others=frozenset(
            "func_evals n_iter d t old_dirs old_stps ro H_diag prev_flat_grad prev_loss al".split(),
        ),
        begins_again="all",
    ),
}


def inner(optimizer: Any) -> Any:
    """Return the optimizer inside what a trainer puts around it (`AcceleratedOptimizer`, `LightningOptimizer`)."""
    while isinstance(wrapped := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = wrapped
    return optimizer


def meaning_of(optimizer: Any, group: Mapping[str, Any]) -> Meaning | None:
    """Return what the state of a parameter in a group of the optimizer means, None where that is not known.

    Known are classes by name, also of optimizers that need not be installed, and classes derived from them.
    """
    kinds = type(optimizer).__mro__
    if group.get("fused") and any(kind.__name__ == "SGD" for kind in kinds):
        return _FUSED_SGD
    if any("8bit" in kind.__name__.lower() or kind.__module__.startswith("torchao.") for kind in kinds):
        return _CODES
    algorithm = group.get("algorithm")  # of our Muon, which has AdamW for some groups
    if algorithm is not None and kinds[0].__name__ == "MuonWithAdamW":
        return KNOWN["Muon" if algorithm == "muon" else "AdamW"]
    told = getattr(type(optimizer), "state_begins_at", None)
    if told is not None:  # an optimizer of somebody else says itself what its state is at the start
        return Meaning({key: partial(_given, begin=float(begin)) for key, begin in told.items()}, frozenset({"step"}))
    return next((KNOWN[kind.__name__] for kind in kinds if kind.__name__ in KNOWN), None)


@dataclass(frozen=True, eq=False)
class StateChange:
    """What becomes of an optimizer's state of one parameter."""

    optimizer: Any
    parameter: Tensor
    group: dict[str, Any]
    name: str
    meaning: Meaning | None
    reach: Literal["elements", "tensor", "all"]

    def carry_out(self, journal: Journal, new: Tensor, stale: Tensor) -> None:
        """Change the state; doing it twice is doing it once."""
        state = self.optimizer.state
        if self.reach == "all":
            for parameter in list(state):
                journal.drop(state, parameter)
        elif self.reach == "tensor" and (self.meaning is None or (self.meaning.lazy and not self.meaning.shared)):
            journal.drop(state, self.parameter)
        elif self.parameter in state:
            assert self.meaning is not None
            self._begin_entries(journal, state[self.parameter], self.meaning, new, stale)

    def _begin_entries(
        self, journal: Journal, own: Mapping[str, Any], meaning: Meaning, new: Tensor, stale: Tensor
    ) -> None:
        for key, start in meaning.entries.items():
            kept = own.get(key)
            if isinstance(kept, Tensor):
                begin = start(new, self.group)
                value = torch.as_tensor(begin, dtype=kept.dtype, device=kept.device)
                journal.put(kept, torch.where(stale.to(kept.device), value, kept))
        if self.reach == "tensor" and isinstance(own.get("step"), Tensor):
            journal.put(own["step"], torch.zeros_like(own["step"]))
        renew(journal, self.optimizer, self.parameter, stale)

    def begin_group(self, journal: Journal) -> None:
        """Let the counters of the group begin again."""
        assert self.meaning is not None
        for key, value in self.meaning.shared.items():
            if key in self.group:
                journal.set(self.group, key, value)


@dataclass(frozen=True, eq=False)
class StateChanges:
    """What becomes of the state of all optimizers, decided before anything is written."""

    of: Mapping[str, tuple[StateChange, ...]] = field(default_factory=dict)
    groups: tuple[StateChange, ...] = ()  # one for each group of which every parameter begins again
    notices: tuple[str, ...] = ()


def decide(
    stale: Mapping[str, bool],
    tensors: Mapping[str, Tensor],
    optimizers: Sequence[Any],
    wish: OptimizerState | None = None,
) -> StateChanges:
    """Decide what becomes of optimizer state when tensors are edited.

    Args:
        stale: The tensors of which some state no longer fits, and whether it is that of every element.
        tensors: The live tensors by name.
        optimizers: All optimizers.
        wish: "keep" or "drop" the state of every edited tensor, whatever it means; None goes by its meaning.

    Raises:
        EditError: State that is not known, and no wish.
    """
    if wish == "keep" or not optimizers:
        kept = ("optimizer state was kept, as asked for; it remembers the old weights",) if optimizers and stale else ()
        return StateChanges(notices=kept)
    found: dict[str, tuple[StateChange, ...]] = {}
    for name, whole in stale.items():
        changes = [
            _decide_one(optimizer, group, tensors[name], name, whole, wish)
            for optimizer in map(inner, optimizers)
            for group in optimizer.param_groups
            if _holds(optimizer, group, tensors[name])
        ]
        if changes:
            found[name] = tuple(changes)
    every = [change for changes in found.values() for change in changes]
    return StateChanges(found, tuple(_whole_groups(every)), _told(every, wish))


def _holds(optimizer: Any, group: Mapping[str, Any], tensor: Tensor) -> bool:
    """Tell whether a group has the tensor and there is state that may speak of it."""
    if not any(parameter is tensor for parameter in group["params"]):
        return False
    meaning = meaning_of(optimizer, group)
    return bool(optimizer.state) if meaning is not None and meaning.begins_again == "all" else tensor in optimizer.state


def _decide_one(
    optimizer: Any, group: dict[str, Any], tensor: Tensor, name: str, whole: bool, wish: OptimizerState | None
) -> StateChange:
    meaning = meaning_of(optimizer, group)
    if wish == "drop":
        begins = meaning if meaning is not None and not meaning.lazy else None
        every = meaning is not None and meaning.begins_again == "all"
        return StateChange(optimizer, tensor, group, name, begins, "all" if every else "tensor")
    own = optimizer.state.get(tensor, {})
    if meaning is None or (meaning is not _CODES and not all(meaning.knows(key) for key in own)):
        keys = [key for key in own if meaning is None or not meaning.knows(key)]
        raise EditError(
            expected=f"an optimizer whose state is known: {', '.join(KNOWN)}, or one with 8 bits",
            got=f"{type(optimizer).__name__} with {', '.join(map(repr, keys))} of {name}; nothing was changed",
            fix="pass optimizer_state='drop' if the optimizer makes the state of a parameter anew where there is none, "
            "or 'keep' to leave it; or treat the model without optimizer= and make a new one",
        )
    reach = "tensor" if whole and meaning.begins_again == "elements" else meaning.begins_again
    return StateChange(optimizer, tensor, group, name, meaning, reach)


def _whole_groups(changes: Sequence[StateChange]) -> Iterable[StateChange]:
    """Yield a change for each group with counters of its own of which all parameters with state begin again."""
    again = {id(change.parameter) for change in changes if change.reach == "tensor"}
    seen: set[int] = set()
    for change in changes:
        if change.meaning is None or not change.meaning.shared or id(change.group) in seen:
            continue
        seen.add(id(change.group))
        if all(id(p) in again for p in change.group["params"] if p in change.optimizer.state):
            yield change


def _told(changes: Sequence[StateChange], wish: OptimizerState | None) -> tuple[str, ...]:
    words = {
        "elements": "begins again for the edited elements of",  # see `edits.renewal`
        "tensor": "begins again for",
        "all": "begins again for all tensors, also those not edited; edited were",
    }
    told = []
    for reach, word in words.items():
        names = list(dict.fromkeys(change.name for change in changes if change.reach == reach))
        kinds = sorted({type(change.optimizer).__name__ for change in changes if change.reach == reach})
        if names:
            asked = ", dropped as asked for" if wish == "drop" else ""
            told.append(f"optimizer state ({', '.join(kinds)}{asked}) {word} {counted(names)}")
    if any(change.reach == "elements" and corrects(change.optimizer) for change in changes):
        told.append(
            "the first steps of these elements are corrected by a hook on the optimizer: keeper.state_dict() carries "
            "it, a copy or a saved state of the optimizer alone does not"
        )
    return tuple(told)


def first_state(optimizer: Any, group: Mapping[str, Any], old: Tensor, new: Tensor) -> dict[str, Any]:
    """Return the state with which a new parameter takes the place of another, empty where the optimizer makes it."""
    meaning = meaning_of(optimizer, group)
    if meaning is None or meaning.lazy:
        return {}
    found: dict[str, Any] = {}
    for key, value in optimizer.state.get(old, {}).items():
        if key in meaning.entries and isinstance(value, Tensor):
            found[key] = torch.zeros_like(new.detach()) + meaning.entries[key](new.detach(), group)
        else:
            found[key] = torch.zeros_like(value) if isinstance(value, Tensor) else value
    return found


def averaged_weights(tensors: Sequence[Tensor], optimizers: Sequence[Any]) -> list[tuple[int, Tensor, float]]:
    """Return state that is weights itself: the number of its tensor, the state, and the share of it in the tensor.

    Schedule-free optimizers keep z and show y = share z + (1 - share) x, ASGD keeps an average beside the weights
    (share 0). What is done to the weights is to be done to them.
    """
    keeping = [each for each in map(inner, optimizers) if _keeps_weights(type(each))]
    if not keeping:  # after every step: most optimizers keep none, and nothing more is looked at
        return []
    numbers = {id(tensor): number for number, tensor in enumerate(tensors)}
    found = []
    for optimizer in keeping:
        for group in optimizer.param_groups:
            meaning = meaning_of(optimizer, group)
            keys = [key for key, start in meaning.entries.items() if start is _weights] if meaning is not None else []
            for parameter in (p for p in group["params"] if id(p) in numbers and p in optimizer.state):
                own = optimizer.state[parameter]
                found += [(numbers[id(parameter)], own[key], _share(group)) for key in keys if key in own]
    return found


def _keeps_weights(cls: type[Any]) -> bool:
    known = [KNOWN[kind.__name__] for kind in cls.__mro__ if kind.__name__ in KNOWN]
    return any(start is _weights for meaning in known[:1] for start in meaning.entries.values())


def _share(group: Mapping[str, Any]) -> float:
    """Return how much of z is in the weights that a schedule-free optimizer shows now."""
    if "weight_sum" not in group or not group.get("train_mode", True):
        return 0.0
    return 1 - float(group["betas"][0] if "betas" in group else group.get("momentum", 0.9))


def begin_again(
    edited: Sequence[Tensor],
    tensors: Mapping[str, Tensor],
    optimizers: Sequence[Any],
    wish: OptimizerState | None = None,
) -> None:
    """Let the state of tensors begin again that were written as a whole, for good."""
    ids = {id(tensor) for tensor in edited}
    names = [name for name, tensor in tensors.items() if id(tensor) in ids]
    changes = decide(dict.fromkeys(names, True), tensors, optimizers, wish)
    journal = Journal()  # thrown away: there is no way back
    for group in changes.groups:
        group.begin_group(journal)
    for name in names:
        for change in changes.of.get(name, ()):
            change.carry_out(journal, tensors[name].detach(), torch.ones_like(tensors[name], dtype=torch.bool))


def refuse_strangers(optimizers: Sequence[Any], model: nn.Module, error: type[Exception]) -> None:
    """Refuse optimizers that train no parameter of the model; that they train only a part of it is common."""
    own = {id(parameter) for parameter in model.parameters()}
    for each in optimizers:
        groups = getattr(each, "param_groups", None)
        if groups is None or (own and not any(id(p) in own for group in groups for p in group["params"])):
            raise error(  # type: ignore[call-arg]
                expected="optimizers that train parameters of this model",
                got=f"a {type(each).__name__}" if groups is None else "one that holds none of them",
                fix="make the optimizer from model.parameters() as they are now; leave it out if it works on copies",
            )


def as_sequence(optimizer: Any) -> tuple[Any, ...]:
    """Return none, one or several optimizers as a tuple."""
    if optimizer is None:
        return ()
    return (
        (optimizer,) if hasattr(optimizer, "param_groups") or not isinstance(optimizer, Iterable) else tuple(optimizer)
    )
