"""Whether a model is still made of the same parts.

Here the very objects count, because an optimizer and the methods of a Keeper hold on to them, and it is asked at every
step. Whether a former trace is still right is another question, which new objects of the same shapes do not change:
see `graph.trace_key`.
"""

from __future__ import annotations

from typing import Any

from torch import nn


class Fingerprint:
    """Modules and parameters of a model by identity, to notice at little cost when one is replaced."""

    def __init__(self, model: nn.Module, *, flags: bool = True) -> None:
        """Look at the model; with `flags` also at which parameters take gradients."""
        self._places = [place for module in model.modules() for place in (module._modules, module._parameters)]
        self._found = [part for place in self._places for part in place.values()]  # kept: an id is not used twice
        self._ids = [id(part) for part in self._found]
        self._first = next((p for p in self._found if isinstance(p, nn.Parameter)), None)
        self._kind = self._kind_now()
        self._parameters = [p for p in self._found if isinstance(p, nn.Parameter)] if flags else []
        self._flags = [p.requires_grad for p in self._parameters]

    def _kind_now(self) -> tuple[Any, ...]:
        return () if self._first is None else (self._first.dtype, self._first.device)

    def holds(self) -> bool:
        """Tell whether all are in their places, on the device and of the type that they were, frozen or not."""
        if self._flags != [p.requires_grad for p in self._parameters]:
            return False
        return self._kind == self._kind_now() and self._ids == [id(p) for place in self._places for p in place.values()]
