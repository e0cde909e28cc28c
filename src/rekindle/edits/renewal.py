"""Elements that began again while the rest of their tensor did not: their steps are those of a fresh optimizer.

Adam and its relatives divide their averages by what a step counter says, one for a whole tensor. An element whose
averages begin again at zero, under a counter that goes on, would make steps of up to 6.4 times the learning rate for
hundreds of steps (the second average grows more slowly than the first). So after each of the optimizer's steps such
elements are set to where a fresh optimizer would have taken them: the averages are what a fresh one would have, and the
step that follows from them is known in closed form. The hook on the optimizer that does this goes when the last element
is old enough for the counter not to matter. It is no part of the optimizer's state dict: `state_of` and `load` carry
the ages.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from rekindle.edits.write import Journal
from rekindle.kernels.precision import widened

OLD = 0.17  # what is left of the second average's start (beta2 ** age) when its correction is within a tenth of one

Group = Mapping[str, Any]
Averages = Mapping[str, Tensor]
Step = Callable[[Averages, Tensor, Tensor, Group], Tensor]
"""From averages, gradient, number of steps and the group to what is subtracted from the weights."""


def _adam(own: Averages, gradient: Tensor, steps: Tensor, group: Group) -> Tensor:
    first, second = _corrections(steps, group)
    largest = own.get("max_exp_avg_sq", own["exp_avg_sq"])
    return _rate(group) * (own["exp_avg"] / first) / ((largest / second).sqrt() + group["eps"])


def _radam(own: Averages, gradient: Tensor, steps: Tensor, group: Group) -> Tensor:
    first, second = _corrections(steps, group)
    rectified, known = _rectified(steps, second, group, 5.0)
    adaptive = rectified * second.sqrt() / (own["exp_avg_sq"].sqrt() + group["eps"])
    return _rate(group) * (own["exp_avg"] / first) * torch.where(known, adaptive, torch.ones_like(adaptive))


def _nadam(own: Averages, gradient: Tensor, steps: Tensor, group: Group) -> Tensor:
    _, second = _corrections(steps, group)
    beta1, decay = group["betas"][0], group["momentum_decay"]
    counted = torch.arange(1, int(steps.max()) + 2, device=steps.device, dtype=steps.dtype)
    mu = beta1 * (1 - 0.5 * 0.96 ** (counted * decay))
    product, at = mu.cumprod(0), steps.long() - 1
    size = (own["exp_avg_sq"] / second).sqrt() + group["eps"]
    now = (1 - mu[at]) / (1 - product[at]) * gradient
    ahead = mu[at + 1] / (1 - product[at + 1]) * own["exp_avg"]
    return _rate(group) * (now + ahead) / size


def _adamax(own: Averages, gradient: Tensor, steps: Tensor, group: Group) -> Tensor:
    return _rate(group) * own["exp_avg"] / (_corrections(steps, group)[0] * own["exp_inf"])


def _free_adam(own: Averages, gradient: Tensor, steps: Tensor, group: Group) -> Tensor:
    size = (own["exp_avg_sq"] / _corrections(steps, group)[1]).sqrt() + group["eps"]
    return float(group["scheduled_lr"]) * gradient / size


def _free_radam(own: Averages, gradient: Tensor, steps: Tensor, group: Group) -> Tensor:
    second = _corrections(steps, group)[1]
    rectified, known = _rectified(steps, second, group, 4.0)
    adaptive = rectified * gradient / ((own["exp_avg_sq"] / second).sqrt() + group["eps"])
    plain = torch.zeros_like(gradient) if group["silent_sgd_phase"] else gradient
    return _rate(group) * torch.where(known, adaptive, plain)


def _corrections(steps: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    return 1 - group["betas"][0] ** steps, 1 - group["betas"][1] ** steps


def _rectified(steps: Tensor, second: Tensor, group: Group, least: float) -> tuple[Tensor, Tensor]:
    """Return RAdam's factor, and where there are steps enough for it."""
    longest = 2 / (1 - group["betas"][1]) - 1
    length = longest - 2 * steps * (1 - second) / second
    inside = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return inside.clamp_min(0).sqrt(), length > least


def _rate(group: Group) -> float:
    return float(group["lr"])


STEPS: dict[str, Step] = {
    "Adam": _adam,
    "AdamW": _adam,
    "MuonWithAdamW": _adam,
    "NAdam": _nadam,
    "RAdam": _radam,
    "Adamax": _adamax,
    "AdamWScheduleFree": _free_adam,
    "RAdamScheduleFree": _free_radam,
}
LOOKING = (_nadam, _free_adam, _free_radam)  # those that look at the gradient itself
AVERAGES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf")


@dataclass(eq=False)
class _Young:
    """The elements of one parameter that began again.

    Attributes:
        where: Where they are.
        born: The step counter when each began.
        seen: The step counter when they were last corrected. A step that the optimizer itself skipped (fused Adam, when
            GradScaler found infinite gradients) does not move it; another jump means that a state was loaded.
        average: One of the averages that are meant, to notice that others were loaded; None until the first step
            where the ages themselves were loaded, beside a state of the optimizer that may come later.
    """

    where: tuple[Tensor, ...]
    born: Tensor
    seen: float
    average: Tensor | None = None

    def joined(self, where: tuple[Tensor, ...], born: Tensor, shape: torch.Size) -> _Young:
        """Return these and others; an element that begins again once more is young once."""
        flat, other = (_flat(each, shape) for each in (self.where, where))
        stay = ~torch.isin(flat, other)
        kept = [torch.cat([mine[stay], theirs]) for mine, theirs in zip(self.where, where, strict=True)]
        return _Young(tuple(kept), torch.cat([self.born[stay], born]), self.seen, self.average)

    def only(self, mask: Tensor, seen: float, average: Tensor | None) -> _Young:
        return _Young(tuple(index[mask] for index in self.where), self.born[mask], seen, average)

    def belongs_to(self, own: Mapping[str, Any], now: float | None) -> bool:
        """Tell whether the optimizer's state is the one that these elements began again in."""
        if now is None or now not in (self.seen, self.seen + 1):
            return False
        return self.average is None or _average(own) is self.average


def _flat(where: tuple[Tensor, ...], shape: torch.Size) -> Tensor:
    flat = torch.zeros_like(where[0])
    for index, size in zip(where, shape, strict=True):
        flat = flat * size + index
    return flat


class _Nursery:
    """The young elements of one optimizer, with the hook that corrects their steps."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.young: dict[Tensor, _Young] = {}
        self.handle: Any = None
        self._leaving: Any = None
        self._running = False
        self._optimizer = weakref.ref(optimizer)

    def give(self, young: dict[Tensor, _Young]) -> None:
        """Take over young elements; the hook is there as long as there are any."""
        optimizer = self._optimizer()
        self.young = young
        if young and self.handle is None and optimizer is not None:
            self.handle = optimizer.register_step_post_hook(self._after_step)
        elif not young and self.handle is not None and not self._running:
            self.handle.remove()
            self.handle = None

    def _leave(self, optimizer: Any) -> None:
        """Take the hook out from inside of it: only the last one can go while torch goes through all of them."""
        if next(reversed(optimizer._optimizer_step_post_hooks)) == self.handle.id:
            self.handle.remove()
            self.handle = None
        elif self._leaving is None:
            self._leaving = optimizer.register_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if not self.young and self.handle is not None:
            self.handle.remove()
            self.handle = None
        if self._leaving is not None and next(reversed(optimizer._optimizer_step_pre_hooks)) == self._leaving.id:
            self._leaving.remove()
            self._leaving = None

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._running = True
        try:
            self._correct(optimizer)
        finally:
            self._running = False
        if not self.young and self.handle is not None:
            self._leave(optimizer)

    def _correct(self, optimizer: Optimizer) -> None:
        left: dict[Tensor, _Young] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in self.young:
                    young = self._corrected(optimizer, group, parameter)
                    if young is not None and len(young.born):
                        left[parameter] = young
        self.give(left)

    def _corrected(self, optimizer: Optimizer, group: Group, parameter: Tensor) -> _Young | None:
        young, own = self.young[parameter], optimizer.state.get(parameter, {})
        now = _counter(own, group)
        if now is None or not young.belongs_to(own, now):
            return None  # the state was cleared or loaded since: it speaks of another past
        if now == young.seen:
            return young  # no step was made
        index = young.where
        averages = {key: widened(own[key][index]) for key in AVERAGES if isinstance(own.get(key), Tensor)}
        step, ages = STEPS[_kind(optimizer)], now - young.born
        if parameter.grad is None and (step in LOOKING or "k" in group):
            return young.only(_remaining(ages, group, averages), now, _average(own))  # none was made on this one
        gradient = _gradient(parameter, averages, index, group, ages.new_full(ages.shape, now))
        made = step(averages, gradient, ages.new_full(ages.shape, now), group)
        due = step(averages, gradient, ages, group)
        _move(parameter, own, index, made - due, group)
        return young.only(_remaining(ages, group, averages), now, _average(own))


def _average(own: Mapping[str, Any]) -> Tensor | None:
    return next((own[key] for key in AVERAGES if isinstance(own.get(key), Tensor)), None)


def _gradient(parameter: Tensor, averages: Averages, index: tuple[Tensor, ...], group: Group, steps: Tensor) -> Tensor:
    gradient = parameter.grad
    if gradient is None:  # cleared by a hook of somebody else; these kinds do not look at it
        return torch.zeros_like(next(iter(averages.values())))
    part = widened((gradient.to_dense() if gradient.is_sparse else gradient)[index])
    if "weight_sum" in group:  # schedule-free leaves the gradient divided by the size, with weight decay added
        part = part - group["weight_decay"] * widened(parameter[index])
        size = (averages["exp_avg_sq"] / _corrections(steps, group)[1]).sqrt() + group["eps"]
        return part * size
    part = -part if group.get("maximize") else part
    return part + group["weight_decay"] * widened(parameter[index]) if _coupled(group) else part


def _coupled(group: Group) -> bool:
    return bool(group.get("weight_decay")) and group.get("decoupled_weight_decay") is False


def _move(parameter: Tensor, own: Mapping[str, Any], index: tuple[Tensor, ...], by: Tensor, group: Group) -> None:
    share = 1.0
    if "weight_sum" in group:
        power = group["lr_max"] ** group["weight_lr_power"] * group["k"] ** group["r"]
        share = 1 - group["betas"][0] * (1 - power / group["weight_sum"]) if group["weight_sum"] else 1.0
        own["z"][index] += by.to(own["z"])
    parameter[index] = (widened(parameter[index]) + share * by).to(parameter.dtype)


def _remaining(ages: Tensor, group: Group, averages: Averages) -> Tensor:
    beta1, beta2 = group["betas"]
    return (beta1**ages > OLD) | (beta2**ages > OLD if "exp_avg_sq" in averages else torch.zeros_like(ages) > 0)


def _counter(own: Mapping[str, Any], group: Group) -> float | None:
    """Return how many steps a parameter has made, by its own counter or its group's."""
    if "step" in own:
        return float(own["step"])
    return float(group["k"]) if "k" in group and own else None


def _kind(optimizer: Any) -> str:
    return next((kind.__name__ for kind in type(optimizer).__mro__ if kind.__name__ in STEPS), "")


def corrects(optimizer: Any) -> bool:
    """Tell whether single elements of an optimizer of this kind need their first steps corrected."""
    return bool(_kind(optimizer))


_NURSERIES: weakref.WeakKeyDictionary[Any, _Nursery] = weakref.WeakKeyDictionary()


def _nursery(optimizer: Any) -> _Nursery:
    if optimizer not in _NURSERIES:
        _NURSERIES[optimizer] = _Nursery(optimizer)
    return _NURSERIES[optimizer]


def renew(journal: Journal, optimizer: Any, parameter: Tensor, stale: Tensor) -> None:
    """Let the steps of some elements be those of a fresh optimizer from now on."""
    own = optimizer.state.get(parameter, {})
    group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    now = _counter(own, group)
    if not _kind(optimizer) or "betas" not in group or not now:
        return
    where = tuple(stale.to(parameter.device).nonzero(as_tuple=True)) if parameter.dim() else ()
    if not where or not len(where[0]):
        return
    born = torch.full((len(where[0]),), now, dtype=torch.float64, device=parameter.device)
    nursery = _nursery(optimizer)
    before = nursery.young
    known = before.get(parameter)
    if known is not None and not known.belongs_to(own, now):
        known = None
    new = _Young(where, born, now, _average(own))
    added = new if known is None else known.joined(where, born, parameter.shape)
    journal.note(partial(nursery.give, before))
    nursery.give({**before, parameter: added})


def state_of(optimizer: Any, names: Mapping[Tensor, str]) -> dict[str, Any]:
    """Return places and ages of young elements by the parameter's name, to be saved.

    Those whose state was cleared since are left out: loaded again, nothing but a counter would tell that they speak of
    another past.
    """
    nursery = _NURSERIES.get(optimizer)
    young = nursery.young if nursery is not None else {}
    groups = {p: group for group in optimizer.param_groups for p in group["params"] if p in young} if young else {}
    return {
        names[p]: {"where": list(each.where), "born": each.born, "seen": each.seen}
        for p, each in young.items()
        if p in names and p in groups and _still(each, optimizer.state.get(p, {}), groups[p])
    }


def _still(young: _Young, own: Mapping[str, Any], group: Group) -> bool:
    """Tell whether elements are young in the state as it is; where they were just loaded, it may yet come."""
    return young.average is None or young.belongs_to(own, _counter(own, group))


def load(optimizer: Any, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Take over what `state_of` returned, for these tensors; others that the optimizer trains keep theirs."""
    nursery, own = _nursery(optimizer), set(tensors.values())
    others = {parameter: young for parameter, young in nursery.young.items() if parameter not in own}
    loaded = {
        tensors[name]: _Young(
            tuple(index.to(tensors[name].device) for index in each["where"]),
            each["born"].to(tensors[name].device),
            each["seen"],
        )
        for name, each in state.items()
    }
    nursery.give({**others, **loaded})
