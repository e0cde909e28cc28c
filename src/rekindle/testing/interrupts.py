"""Raise at every line of a treatment, and see what is left: the promise under an exception or Ctrl-C at any moment."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.edits.write import Journal
from rekindle.graph.own_run import is_own_run
from rekindle.graph.surroundings import dispatch_modes
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


def moments_to_raise(lines: Lines, *, thorough: bool = True) -> Iterator[tuple[Line, int]]:
    """Yield every line with its first time, and with its last where it was run several times.

    Args:
        lines: From a run that was not interrupted.
        thorough: Otherwise the last time only of lines that were run after the first write.
    """
    for line, count in lines.counts.items():
        yield line, 1
        if count > 1 and (thorough or line in lines.writing):
            yield line, count


Work = Callable[[], tuple[nn.Module, torch.optim.Optimizer, Callable[[], Any]]]


def check_interrupts(make: Work, *, undo: bool = True, thorough: bool = True) -> int:
    """Interrupt a treatment at every line: model, optimizer and torch's modes are as they were, or it is finished.

    Args:
        make: Returns a model, its optimizer, and the treatment of both as a function without arguments.
        undo: Whether the treatment keeps the old values. Without them it goes on to its end once it has begun.
        thorough: See `moments_to_raise`.

    Returns:
        How many moments were tried.

    Raises:
        AssertionError: Something was left half done; the message names the lines.
    """
    make()[2]()  # what is computed once and kept (a trace, its scale) is no part of the later runs
    model, optimizer, treat = make()
    lines = Lines()
    lines.run(treat)
    finished = picture(model, optimizer)
    broken, tried = [], 0
    for line, time in moments_to_raise(lines, thorough=thorough):
        wrong = _interrupted(make, line, time, finished, undo)
        tried += 1
        if wrong:
            broken.append(f"{Path(line[0]).relative_to(HOME)}:{line[1]}, time {time}: {wrong}")
    assert not broken, f"{len(broken)} of {tried} interrupts:\n" + "\n".join(broken[:20])
    return tried


def _interrupted(make: Work, line: Line, time: int, finished: Mapping[str, Any], undo: bool) -> str:
    """Interrupt one treatment and return what is wrong afterwards, or nothing."""
    model, optimizer, treat = make()
    before = picture(model, optimizer)
    record = None
    try:
        record = Lines(line, time).run(treat)
    except KeyboardInterrupt as error:
        record = getattr(error, "record", None)
        if record is not None and undo:
            return "the treatment was finished though it can be taken back"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if record is None:
        return difference(before, picture(model, optimizer))
    after = picture(model, optimizer)
    return next((found for part in VALUES if (found := difference(finished[part], after[part], part))), "")


VALUES = ("tensors", "state", "counters", "hooks", "modes", "generator")  # of a picture: what is no object's identity


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
            dispatch_modes(),
            torch.get_num_threads(),
            str(getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)),
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
