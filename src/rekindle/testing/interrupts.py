"""Raise at every line of a treatment, and see what is left: the promise under an exception or Ctrl-C at any moment."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.edits.write import Journal
from rekindle.graph.own_run import is_own_run
from rekindle.testing.aged import hooks

HOME = str(Path(__file__).resolve().parent.parent)
Line = tuple[str, int]


class Lines:
    """Follows the lines of ours that are run, and raises at one of them."""

    def __init__(self, raise_at: Line | None = None, time: int = 1) -> None:
        """Raise KeyboardInterrupt when a line is reached for the `time`-th time; None only counts."""
        self.counts: dict[Line, int] = {}
        self.writing: set[Line] = set()  # lines that were reached after the first write
        self.raised = False
        self._raise_at, self._time, self._wrote = raise_at, time, False

    def run(self, work: Callable[[], Any]) -> Any:
        """Run something under the eye."""
        before = sys.gettrace()
        note = Journal.note

        def noted(journal: Journal, back: Any) -> None:
            self._wrote = True
            note(journal, back)

        Journal.note = noted  # type: ignore[method-assign,assignment]
        sys.settrace(self._enter)
        try:
            return work()
        finally:
            sys.settrace(before)
            Journal.note = note  # type: ignore[method-assign]

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        ours = frame.f_code.co_filename.startswith(HOME) and frame.f_code.co_filename != __file__
        return self._line if ours and not self.raised else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.raised or event != "line":
            return self._line
        line = (frame.f_code.co_filename, frame.f_lineno)
        self.counts[line] = self.counts.get(line, 0) + 1
        if self._wrote:
            self.writing.add(line)
        if line == self._raise_at and self.counts[line] == self._time:
            self.raised = True
            sys.settrace(None)
            raise KeyboardInterrupt
        return self._line


def moments_to_raise(lines: Lines) -> Iterator[tuple[Line, int]]:
    """Yield every line with its first time, and with its last where it was run several times."""
    for line, count in lines.counts.items():
        yield line, 1
        if count > 1:
            yield line, count


def picture(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return all that a treatment may touch: values, structure, flags, optimizer, and the modes of torch."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        "tensors": {name: t.detach().clone() for name, t in model.state_dict().items()},
        "objects": {name: id(t) for name, t in model.named_parameters()},
        "modules": {name: (id(m), m.training) for name, m in model.named_modules()},
        "hooks": hooks(model),
        "flags": {
            n: (p.requires_grad, None if p.grad is None else p.grad.clone()) for n, p in model.named_parameters()
        },
        "groups": [[id(p) for p in group["params"]] for group in optimizer.param_groups],
        "counters": [{k: v for k, v in g.items() if isinstance(v, (int, float))} for g in optimizer.param_groups],
        "state": {names.get(id(p), id(p)): _values(own) for p, own in optimizer.state.items()},
        "optimizer hooks": len(getattr(optimizer, "_optimizer_step_post_hooks", ())),
        "generator": torch.get_rng_state(),
        "modes": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            is_own_run(),
            len(warnings.filters),
        ),
    }


def _values(own: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in own.items()}


def difference(before: Any, after: Any, path: str = "") -> str:
    """Return where two pictures differ first, or nothing."""
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return "" if before.shape == after.shape and torch.equal(before, after) else path
    if type(before) is not type(after):
        return path
    if isinstance(before, dict):
        if set(before) != set(after):
            return f"{path}: {sorted(map(str, set(before) ^ set(after)))[:3]}"
        pairs = [(key, before[key], after[key]) for key in before]
    elif isinstance(before, (list, tuple)):
        if len(before) != len(after):
            return path
        pairs = [(number, *pair) for number, pair in enumerate(zip(before, after, strict=True))]
    else:
        return "" if before == after else f"{path}: {before} -> {after}"
    return next((found for key, a, b in pairs if (found := difference(a, b, f"{path}/{key}"))), "")
