"""Where `torch.export` stops in a model, and at what: the module, the file and the line of the model's own code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import fx, nn

BRANCHES = "forward branches on data"
NUMBERS = "forward turns values of a tensor into Python numbers"
SHAPES = "forward computes a tensor whose shape depends on data"
OUTSIDE_TORCH = "forward takes values out of torch"
RETURNS = "forward is given Python numbers by a part that stops"
ASKED = {  # what the message of an error tells of its kind
    "Could not guard on data-dependent": BRANCHES,
    "Could not extract specialized integer": NUMBERS,
    "aten._local_scalar_dense": NUMBERS,
    "aten.item": NUMBERS,
    ".numpy()": OUTSIDE_TORCH,
    "DynamicOutputShape": SHAPES,
    "data-dependent": BRANCHES,
    "data dependent": BRANCHES,
}
_NOT_THE_MODELS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)
_PLACE = re.compile(r'File "(.+)", line (\d+)')


@dataclass(frozen=True)
class Stop:
    """A line at which export cannot go on.

    Args:
        path: The module whose forward pass it belongs to, as `named_modules` calls it.
        kind: What stands there, in words.
        file: File of the model's code.
        line: Line in it, 0 where it is not known.
    """

    path: str
    kind: str
    file: str = ""
    line: int = 0

    @property
    def why(self) -> str:
        """Return the kind with file and line: "forward branches on data at net.py:12"."""
        return f"{self.kind} at {os.path.basename(self.file)}:{self.line}" if self.file else self.kind

    @property
    def place(self) -> str:
        """Return file and line in full."""
        return f"{self.file}:{self.line}" if self.file else "a line that is not known"


def stop_of_error(error: BaseException, model: nn.Module) -> Stop:
    """Return where an export failed; the model's own path "" stands for what no module inside it is to blame for."""
    paths = {id(module): path for path, module in model.named_modules()}
    for each in _chain(error):
        frames = list(_frames(each.__traceback__))
        inside = [n for n, (frame, _) in enumerate(frames) if id(_forwarding(frame)) in paths]
        if inside:
            module: Any = _forwarding(frames[inside[-1]][0])
            file, line = _own_line(frames, inside[-1])
            return Stop(paths[id(module)], kind_of(error), file, line)
    return Stop("", kind_of(error))


def stop_of_shapes(program: torch.export.ExportedProgram) -> Stop | None:
    """Return where a shape that only the data tells comes up in an exported program, None if all are known."""
    for graph in (m for m in program.graph_module.modules() if isinstance(m, fx.GraphModule)):
        for node in graph.graph.nodes:
            if any(_unknown(size) for shape in _shapes(node.meta.get("val")) for size in shape):
                stack = node.meta.get("nn_module_stack")
                places = _PLACE.findall(node.meta.get("stack_trace") or "")
                own = [place for place in places if not place[0].startswith(_NOT_THE_MODELS)] or places
                file, line = own[-1] if own else ("", "0")
                return Stop(str(list(stack.values())[-1][0]) if stack else "", SHAPES, file, int(line))
    return None


def kind_of(error: BaseException) -> str:
    """Return in words what export stopped at."""
    for each in _chain(error):
        text = f"{type(each).__name__} {each}"
        for part, kind in ASKED.items():
            if part in text:
                return kind
    return f"torch.export cannot follow forward ({first_line(error)})"


def first_line(error: BaseException) -> str:
    """Return the class of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _forwarding(frame: FrameType) -> object:
    """Return the module whose forward pass a frame runs."""
    code = frame.f_code
    if code.co_name not in ("forward", "_call_impl") or not code.co_varnames:
        return None
    return frame.f_locals.get(code.co_varnames[0])


def _own_line(frames: list[tuple[FrameType, int]], at: int) -> tuple[str, int]:
    """Return the innermost line of the model's own code; without any that of the forward pass that a frame runs."""
    own = [each for each in frames if not each[0].f_code.co_filename.startswith(_NOT_THE_MODELS)] or [frames[at]]
    return own[-1][0].f_code.co_filename, own[-1][1]


def _shapes(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value.shape
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _shapes(each)


def _unknown(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None
