"""What an object holds, as a list of facts that can be compared with a later one.

Facts are made by walking through attributes, containers, functions and classes; no code of the object is run. Three
rules keep them honest. Nothing is known by a number that may be given to another object later: what has no value of its
own is known by a weak reference. No fact keeps anything alive that could hold what was looked at. And what cannot be
looked into is not passed over: `Unseen` is raised.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

MOST = 200_000  # facts; who holds more (a trainer, a data set) is not looked at
AGAIN, ABSENT = "<again>", "<absent>"
# Of a class: what says something about it, and nothing about what it does.
DESCRIBING = frozenset(
    "__dict__ __weakref__ __doc__ __module__ __qualname__ __annotations__ __annotate__ __annotate_func__ "
    "__annotations_cache__ __firstlineno__ __static_attributes__ __abstractmethods__ _abc_impl __parameters__ "
    "__orig_bases__ __dataclass_fields__ __match_args__ __signature__ __slots__".split()
)
# Packages and classes whose objects are known by which they are, and not by what they hold: loggers, locks, files,
# optimizers, trainers. Of torch's, distributions are made of tensors that a forward pass computes with.
CLOSED = frozenset(
    "logging threading _thread io _io socket subprocess queue multiprocessing asyncio concurrent weakref random re "
    "importlib inspect typing ctypes contextvars torch".split()
)
CLOSED_CLASSES, OPEN = frozenset({"Trainer", "Fabric"}), "torch.distributions"


class Unseen(Exception):
    """Something cannot be looked into, or there is too much of it."""


class Facts:
    """Walks through what an object holds and writes down facts; each object once, and then as met before.

    Attributes:
        found: The facts.
        values: Whether values of tensors and arrays count.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.found: list[Any] = []
        self.values = True
        self._met: dict[int, int] = {}
        self._open: set[int] = set()  # containers that we are inside
        self._held: list[Any] = []  # met objects stay alive while we look, so that no id is given twice

    def look(self, item: Any) -> None:
        """Look at anything at all, in the way that is known for its class or the nearest of its bases."""
        way = WAYS.get(type(item)) or next(WAYS[base] for base in type(item).__mro__ if base in WAYS)
        way(self, item)

    def is_new(self, item: Any) -> bool:
        """Tell whether an object was not met before; else write down which it is."""
        number = self._met.get(id(item))
        if number is not None:
            self.found += (AGAIN, number)
            return False
        self._limit()
        self._met[id(item)] = len(self._met)
        self._held.append(item)
        return True

    def was_met(self, item: Any) -> bool:
        """Tell whether an object was met before."""
        return id(item) in self._met

    def enters(self, items: Any) -> bool:
        """Begin with what a container holds, unless we are inside it; which one it is does not matter."""
        self._limit()
        inside = id(items) in self._open
        self.found += (type(items).__name__, AGAIN if inside else len(items))
        self._open.add(id(items))
        return not inside

    def leaves(self, items: Any) -> None:
        """End with what a container holds; one of a class of its own has that, and may have attributes."""
        self._open.discard(id(items))
        if type(items) not in WAYS:
            self.kind(type(items))
            self.inside(items)

    def _limit(self) -> None:
        if len(self.found) > MOST:
            raise Unseen("more than can be looked at")

    def kind(self, cls: type) -> None:
        """Look at the class of something: which it is, and what it and its bases define."""
        self.found.append(weakref.ref(cls))
        for base in () if self.was_met(cls) else cls.__mro__:
            if base is not object and not self.was_met(base) and self.is_new(base):
                self.found.append(weakref.ref(base))
                for name, value in vars(base).items():
                    if name not in DESCRIBING:
                        self.found.append(name)
                        self.look(value)

    def inside(self, item: Any) -> None:
        """Look at the attributes of an object, if it has a table of them."""
        try:
            own = object.__getattribute__(item, "__dict__")
        except AttributeError:
            return
        if own:
            self.look(own)

    def same(self, item: Any) -> None:
        """Write down which object it is; with slots and without weak references its attributes alone tell."""
        try:
            self.found.append(_Same(item))
        except TypeError:
            if not any(_slots(type(item))):
                raise Unseen(type(item).__name__) from None


Way = Callable[[Facts, Any], None]
WAYS: dict[type, Way] = {}


def looks_at(*classes: type) -> Callable[[Way], Way]:
    """Say that a function knows how to look at objects of these classes."""

    def known(way: Way) -> Way:
        WAYS.update(dict.fromkeys(classes, way))
        return way

    return known


@looks_at(object)
def anything(facts: Facts, item: Any) -> None:
    """Look at any object: which one, and where that is of interest its class and its attributes."""
    if type(item) is object:
        facts.found.append(item)  # it holds nothing, and takes no weak reference
    elif facts.is_new(item):
        facts.same(item)
        if not is_closed(type(item)):
            facts.kind(type(item))
            facts.inside(item)
            for name, slot in _slots(type(item)):
                facts.found.append(name)
                facts.look(_held_in(slot, item))


class _Same:
    """Which object it is: equal as long as it is that one, and alive."""

    __slots__ = ("ref",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, item: Any) -> None:
        self.ref = weakref.ref(item)

    def __eq__(self, other: object) -> bool:
        mine = self.ref()
        return isinstance(other, _Same) and mine is not None and mine is other.ref()


def is_closed(cls: type) -> bool:
    """Tell whether a class and its objects are known by which they are, and not by what they hold."""
    if cls.__module__.startswith(OPEN):
        return False
    classes = {base.__name__ for base in cls.__mro__}
    return cls.__module__.partition(".")[0] in CLOSED or not CLOSED_CLASSES.isdisjoint(classes)


def _slots(cls: type) -> Iterator[tuple[str, Any]]:
    for base in cls.__mro__:
        yield from ((name, slot) for name, slot in vars(base).items() if type(slot) is types.MemberDescriptorType)


def _held_in(slot: Any, item: Any) -> Any:
    try:
        return slot.__get__(item)
    except AttributeError:
        return ABSENT
