"""Facts about functions and classes: which they are, their code, and what they close over."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

from rekindle.graph.facts.looking import ABSENT, WAYS, Facts, is_closed, looks_at
from rekindle.graph.facts.values import mapping, sequence

COMPILER = "torch._dynamo"  # in a run of ours what it wraps runs as it is written


@looks_at(types.FunctionType)
def function(facts: Facts, item: types.FunctionType) -> None:
    """Look at a function: which one, its code, its defaults, what it closes over and its attributes."""
    if not facts.is_new(item):
        return
    facts.found += (weakref.ref(item), item.__code__)
    if item.__globals__.get("__name__", "").startswith(COMPILER):
        facts.look(getattr(item, "_torchdynamo_orig_callable", None))
        return
    if item.__defaults__:
        sequence(facts, item.__defaults__)
    for cell in item.__closure__ or ():
        variable(facts, cell)
    for table in (item.__kwdefaults__, item.__dict__):
        if table:
            mapping(facts, table)


@looks_at(types.CellType)
def variable(facts: Facts, cell: types.CellType) -> None:
    """Look at a variable that a function closes over; it may be empty yet."""
    try:
        content = cell.cell_contents
    except ValueError:
        content = ABSENT
    facts.look(content)


@looks_at(types.MethodType)
def method(facts: Facts, item: types.MethodType) -> None:
    """Look at a function with its object."""
    facts.look(item.__func__)
    facts.look(item.__self__)


@looks_at(types.BuiltinFunctionType)
def builtin(facts: Facts, item: types.BuiltinFunctionType) -> None:
    """Look at a function of C: that of a list or a dict with what it belongs to, others by which they are."""
    facts.found.append(item.__name__)
    owner: Any = item.__self__
    if type(owner) in WAYS and not isinstance(owner, types.ModuleType):
        facts.look(owner)
    else:
        facts.same(item)


@looks_at(functools.partial)
def partial(facts: Facts, item: functools.partial[Any]) -> None:
    """Look at a function with arguments."""
    if facts.is_new(item):
        sequence(facts, (item.func, item.args, item.keywords))
        facts.inside(item)


@looks_at(staticmethod, classmethod)
def wrapped(facts: Facts, item: Any) -> None:
    """Look at the function of a class."""
    facts.found.append(type(item).__name__)
    facts.look(item.__func__)


@looks_at(property)
def described(facts: Facts, item: property) -> None:
    """Look at the functions of a property."""
    sequence(facts, (item.fget, item.fset, item.fdel))


@looks_at(type)
def held_class(facts: Facts, cls: type) -> None:
    """Look at a class that somebody holds: which it is, and what it defines; it may be a configuration."""
    if is_closed(cls):
        facts.found.append(weakref.ref(cls))
    else:
        facts.kind(cls)


@looks_at(types.ModuleType)
def package(facts: Facts, item: types.ModuleType) -> None:
    """Look at a module of Python: which it is."""
    facts.same(item)


@looks_at(weakref.ref)
def reference(facts: Facts, item: weakref.ref[Any]) -> None:
    """Look at what a weak reference leads to."""
    facts.look(item())


@looks_at(
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    types.UnionType,
    types.GenericAlias,
)
def sort_of_thing(facts: Facts, item: Any) -> None:
    """Look at something of C that classes have: which sort of thing it is."""
    facts.found.append(type(item).__name__)
