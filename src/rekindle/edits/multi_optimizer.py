"""Several optimizers that look like one to what clears, moves and puts back optimizer state."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, cast

from torch import Tensor
from torch.optim import Optimizer

State = MutableMapping[Any, Any]


def as_one(optimizers: Sequence[Optimizer]) -> Optimizer | None:
    """Return one optimizer's face for none, one or several."""
    if len(optimizers) < 2:
        return optimizers[0] if optimizers else None
    return cast(Optimizer, MultiOptimizer(optimizers))


class MultiOptimizer:
    """What `edits.write` and `edits.operate` need of an optimizer: `state` and `param_groups`."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.param_groups: list[dict[str, Any]] = [group for each in optimizers for group in each.param_groups]
        self.state = States(optimizers)


class Shared(dict[str, Any]):
    """State of a parameter that more than one optimizer has, to be read or put back; `parts` are the real ones."""

    def __init__(self, parts: Sequence[tuple[State, dict[str, Any]]]) -> None:
        self.parts = tuple(parts)
        named = {
            f"{key} of optimizer {n}": v for n, (_, own) in enumerate(parts) for key, v in own.items() if key != "step"
        }
        super().__init__(named)


class States(MutableMapping[Any, Any]):
    """The states of several optimizers as one mapping. Looking creates no entry, as it would in each of them.

    Example:
        >>> import torch
        >>> a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        >>> both = [torch.optim.Adam(a.parameters()), torch.optim.Adam(b.parameters())]
        >>> b.weight in States(both), len(both[0].state)
        (False, 0)
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._optimizers = tuple(optimizers)

    def __getitem__(self, parameter: Any) -> Any:
        found = [(each.state, each.state[parameter]) for each in self._optimizers if parameter in each.state]
        if not found:
            raise KeyError(parameter)
        return found[0][1] if len(found) == 1 else Shared(found)

    def __setitem__(self, parameter: Any, value: Any) -> None:
        if isinstance(value, Shared):
            for state, own in value.parts:
                state[parameter] = own
        else:
            self._holder(parameter).state[parameter] = value

    def __delitem__(self, parameter: Any) -> None:
        for each in self._optimizers:
            each.state.pop(parameter, None)

    def __iter__(self) -> Iterator[Any]:
        return iter(dict.fromkeys(parameter for each in self._optimizers for parameter in each.state))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _holder(self, parameter: Tensor) -> Optimizer:
        for each in self._optimizers:
            if any(own is parameter for group in each.param_groups for own in group["params"]):
                return each
        raise KeyError(parameter)
