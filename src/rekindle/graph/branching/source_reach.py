"""What the code of a forward pass may reach inside the modules that it calls, read from its source.

A forward pass that branches is seen on one of its ways only. On the others it may take a part of itself to pieces: use
`self.encoder.fc.weight`, call `self.encoder.fc`, run half of a Sequential. Then the readers of the units inside are not
all known. The source is read for such names; whatever is in doubt counts as reached.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from torch import nn

from rekindle.graph.branching.plain_values import is_plain, is_settings_or_followed, is_torch, outer_values

EVERYTHING = {  # ways to get at tensors and modules without their names
    *("parameters", "named_parameters", "_parameters", "get_parameter", "buffers", "named_buffers", "_buffers"),
    *("modules", "named_modules", "_modules", "children", "named_children", "get_submodule", "state_dict", "apply"),
    *("__dict__", "vars", "functional_call", "eval", "exec", "attrgetter", "methodcaller"),
}
ASKING = {"isinstance", "hasattr", "getattr", "type", "id", "super", "callable", "setattr"}
ITERATORS = {"enumerate", "zip", "reversed", "list", "tuple", "iter"}


@dataclass(eq=False)
class Reach:
    """Names that the code of a forward pass mentions.

    Args:
        known: Whether the source could be read.
        names: Pairs (attribute of the module, "" if it is not known; name that is looked up on it).
        taken_apart: Attributes of the module that are used otherwise than called, or of which elements are.
        indexed: Attributes of the module of which elements are taken, and called.
        touched: Pairs (attribute of the module; name that is looked up on it, or on what it holds).
        asked: Names that are looked up on the module itself.
        stored: Names that are assigned on it.
    """

    known: bool = True
    names: set[tuple[str, str]] = field(default_factory=set)
    taken_apart: set[str] = field(default_factory=set)
    indexed: set[str] = field(default_factory=set)
    touched: set[tuple[str, str]] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)

    def exposes(self, inner: str, part: nn.Module, tensor: str) -> bool:
        """Tell whether the code may use a tensor of a part directly.

        Args:
            inner: Path of the part in the module.
            part: The part, which the code calls.
            tensor: Name of the tensor in the part.
        """
        first = inner.partition(".")[0]
        said = {name for attribute, name in self.names if attribute in ("", first)}
        if not self.known or said & EVERYTHING or said & _methods(part):
            return True
        if said & {word for word in tensor.split(".") if not word.isdigit()}:
            return True
        looked_up = {name for attribute, name in self.touched if attribute == first} - set(inner.split("."))
        if not all(is_plain(getattr(part, name, None)) for name in looked_up):
            return True
        return self._opens(inner) if hasattr(type(part), "__getitem__") else first in self.taken_apart

    def _opens(self, inner: str) -> bool:
        """Tell whether the code may take single layers out of a container that it calls."""
        first, *rest = inner.split(".")
        if not rest:
            return first in self.taken_apart | self.indexed
        return first in self.taken_apart or len(rest) > 1


def reach_of(module: nn.Module) -> Reach:
    """Return what the forward pass of a module mentions, with all methods and functions that it may call."""
    reach = Reach()
    todo: list[tuple[FunctionType, bool]] = [(each, True) for each in _functions(getattr(module, "forward", None))]
    reach.known = bool(todo)
    seen: set[Any] = set()
    while todo:
        function, method = todo.pop()
        if function.__code__ in seen:
            continue
        seen.add(function.__code__)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            reach.known = False
            return reach
        code = function.__code__
        owner = code.co_varnames[0] if method and code.co_argcount else ""
        _Reader(reach, owner).read(tree)
        if _passes_on(tree, owner) or not all(map(is_settings_or_followed, outer_values(function))):
            reach.known = False
            return reach
        words = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        todo += [(each, True) for name in attributes for each in _definitions(type(module), name)]
        todo += [(each, False) for name in attributes for each in _functions(module.__dict__.get(name))]
        todo += [(each, False) for name in words for each in _visible(function, name)]
    reach.known = all(_is_known(module, name) for name in reach.asked - reach.stored)
    return reach


def _is_known(module: nn.Module, name: str) -> bool:
    """Tell whether it is known what a name stands for on a module: a part, a setting, or code that was read."""
    if name in module._modules or name in module._parameters or name in module._buffers:
        return True
    if name in module.__dict__:
        return is_settings_or_followed(module.__dict__[name])
    return hasattr(type(module), name)


class _Reader:
    """Reads one function."""

    def __init__(self, reach: Reach, owner: str) -> None:
        self.reach, self.owner = reach, owner

    def read(self, tree: ast.AST) -> None:
        above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        locals_of: dict[str, set[str]] = {}  # local name -> attributes whose elements it holds
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                self._attribute(node, above, locals_of)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                if not isinstance(above.get(node), ast.Expr):
                    self.reach.names.add(("", node.value))
            elif isinstance(node, ast.Name) and node.id in EVERYTHING:
                self.reach.names.add(("", node.id))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in locals_of:
                if not _is_called(node, above) and not isinstance(above.get(node), ast.Attribute):
                    self.reach.taken_apart |= locals_of[node.id]
                name = above.get(node)
                if isinstance(name, ast.Attribute):
                    self.reach.touched |= {(attribute, name.attr) for attribute in locals_of[node.id]}

    def _attribute(self, node: ast.Attribute, above: dict[ast.AST, ast.AST], locals_of: dict[str, set[str]]) -> None:
        if not self._is_own(node):
            first = self._first(node)
            if first and self._first(node, calls=False):
                self.reach.touched.add((first, node.attr))
            if not (first == "" and _only_asks_for_kind(node, above)):
                self.reach.names.add((first, node.attr))
            return
        (self.reach.asked if isinstance(node.ctx, ast.Load) else self.reach.stored).add(node.attr)
        if isinstance(node.ctx, ast.Store):
            return
        if node.attr in EVERYTHING and not _only_asks_for_kind(node, above):
            self.reach.names.add(("", node.attr))
        if _is_called(node, above) or isinstance(above.get(node), ast.Attribute) or _only_asks_whether(node, above):
            return
        targets = _elements(node, above)
        if targets is None:
            self.reach.taken_apart.add(node.attr)
            return
        self.reach.indexed.add(node.attr)
        for name in targets:
            locals_of.setdefault(name, set()).add(node.attr)

    def _is_own(self, node: ast.AST) -> bool:
        """Tell whether a node is `self.something`."""
        return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self.owner

    def _first(self, node: ast.AST, *, calls: bool = True) -> str:
        """Return `net` for `self.net[0].fc.weight`, and for `self.net(x).shape` if calls count."""
        while isinstance(node, (ast.Attribute, ast.Subscript)) or (calls and isinstance(node, ast.Call)):
            if isinstance(node, ast.Attribute) and self._is_own(node):
                return node.attr
            node = node.func if isinstance(node, ast.Call) else node.value
        return ""


def _is_called(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    parent = above.get(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _only_asks_whether(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """Tell `self.norm is None`, `if self.norm`, `isinstance(self.norm, ...)`."""
    parent = above.get(node)
    if isinstance(parent, ast.Compare):
        return all(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops)
    if isinstance(parent, (ast.If, ast.IfExp, ast.While)):
        return parent.test is node
    asks = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ASKING
    return asks or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))


def _passes_on(tree: ast.AST, owner: str) -> bool:
    """Tell whether code gives the module itself away, or looks up names that it computes."""
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and owner and node.id == owner:
            parent = above.get(node)
            asks = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ASKING
            if not asks and not isinstance(parent, ast.Attribute):
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant):
                return True
    return False


def _elements(node: ast.AST, above: dict[ast.AST, ast.AST]) -> set[str] | None:
    """Return the local names that elements of a container go to; None where it is used in another way."""
    place: int | None = None  # of several targets
    while True:
        parent = above.get(node)
        if isinstance(parent, ast.Subscript) and parent.value is node:
            if not isinstance(parent.slice, ast.Slice):  # a slice is a container again, and followed further
                return _element(parent, above)
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len":
            return set()
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ITERATORS:
            place = {"enumerate": 1, "zip": parent.args.index(node) if node in parent.args else 0}.get(
                parent.func.id, place
            )
        elif isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node:
            return _names(parent.target, place)
        else:
            return None
        node = parent


def _element(node: ast.AST, above: dict[ast.AST, ast.AST]) -> set[str] | None:
    """Return the local names that one element of a container goes to; None where it is opened itself."""
    parent = above.get(node)
    if isinstance(parent, ast.Assign):
        return {name for target in parent.targets for name in _names(target, None)}
    return set() if _is_called(node, above) or isinstance(parent, ast.Attribute) else None


def _names(target: ast.AST, place: int | None) -> set[str]:
    if place is not None and isinstance(target, (ast.Tuple, ast.List)) and place < len(target.elts):
        target = target.elts[place]
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _only_asks_for_kind(node: ast.Attribute, above: dict[ast.AST, ast.AST]) -> bool:
    """Tell `next(self.parameters()).device`, which looks at no value."""
    called = above.get(node)
    if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "next":
        return node.attr in ("device", "dtype")
    outer = above.get(called) if isinstance(called, ast.Call) else None
    asked = above.get(outer) if isinstance(outer, ast.Call) else None
    is_next = isinstance(outer, ast.Call) and isinstance(outer.func, ast.Name) and outer.func.id == "next"
    return is_next and isinstance(asked, ast.Attribute) and asked.attr in ("device", "dtype")


def _methods(part: nn.Module) -> set[str]:
    """Return the names of what a part and the modules inside it can do beside being called."""
    own = [cls for module in part.modules() for cls in type(module).__mro__ if not is_torch(cls)]
    named = {name for cls in own for name, value in vars(cls).items() if callable(value) or isinstance(value, property)}
    return {name for name in named if name != "forward" and not name.startswith("__")}


def _definitions(cls: type, name: str) -> Iterator[FunctionType]:
    for each in cls.__mro__:
        if not is_torch(each) and name in vars(each):
            yield from _functions(vars(each)[name])


def _visible(function: FunctionType, name: str) -> Iterator[FunctionType]:
    """Yield the function that a name stands for where another one is defined."""
    inside = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    if name in inside:
        try:
            yield from _functions(inside[name].cell_contents)
        except ValueError:  # not filled yet
            return
    else:
        yield from _functions(function.__globals__.get(name))


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield the Python functions behind a method, a property or a decorated function; none of torch's."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    value = getattr(value, "__func__", value)
    while isinstance(value, FunctionType):
        if not is_torch(value):
            yield value
        value = getattr(value, "__wrapped__", None)
