"""The four kinds of methods: what each must have, and the decorator that makes a class one of them.

    @one_shot_method(CARD, identity={"factor": 1.0})
    class Soften: ...

The key is the name of the class in small letters: `Soften` is `soften`, `ShrinkPerturb` is `shrink_perturb`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast, runtime_checkable

from torch import nn
from torch.optim import Optimizer
from typing_extensions import dataclass_transform

from rekindle.edits.edit import Edits
from rekindle.errors import SettingsError
from rekindle.methods.card import Card, Kind
from rekindle.methods.frozen_settings import settings
from rekindle.methods.state import MethodContext, MethodState

T = TypeVar("T")
Quantity = Literal["magnitude", "mean", "fired"]


class Method(Protocol):
    """What methods of every kind have; the decorators put it there.

    Attributes:
        key: Its one spelling: spec strings, CLI word, file name.
        kind: Which of the four it is.
        card: What a user must know.
        identity: Settings with which it changes nothing.
    """

    key: ClassVar[str]
    kind: ClassVar[Kind]
    card: ClassVar[Card]
    identity: ClassVar[Mapping[str, Any]]


@runtime_checkable
class OneShotMethod(Method, Protocol):
    """A treatment between two trainings."""

    def plan(self, graph: Any, evidence: Any, seed: int) -> Edits:
        """Return the edits for a graph; nothing is written."""


@runtime_checkable
class PerStepMethod(Method, Protocol):
    """A method that acts beside every step of the optimizer."""

    def init(self, context: MethodContext) -> MethodState:
        """Return what the method keeps, for a model: its `penalty`, `after_step` or `edits`."""


@runtime_checkable
class RecyclerMethod(Method, Protocol):
    """A method that chooses units to be recycled; the surgery is shared by all.

    Attributes:
        observes: What is seen of activations: any of "magnitude", "mean", "fired".
    """

    observes: ClassVar[tuple[Quantity, ...]]

    def init(self, context: MethodContext) -> MethodState:
        """Return what the method keeps, for a model: its `choose` and `recycled`."""


@runtime_checkable
class OptimizerMethod(Method, Protocol):
    """A method that is an optimizer."""

    def build(self, model: nn.Module, example: Any = None, *, graph: Any = None) -> Optimizer:
        """Return the optimizer for a model."""


NEEDS: dict[Kind, str] = {"one-shot": "plan", "per-step": "init", "recycler": "init", "optimizer": "build"}
IN_STEPS: tuple[Kind, ...] = ("per-step", "recycler")  # kinds that a Keeper starts, and that act after steps
PROTOCOLS: dict[Kind, type[Any]] = {
    "one-shot": OneShotMethod,
    "per-step": PerStepMethod,
    "recycler": RecyclerMethod,
    "optimizer": OptimizerMethod,
}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def one_shot_method(card: Card, *, identity: Mapping[str, Any]) -> Callable[[type[T]], type[T]]:
    """Make a class with a `plan` a one-shot method.

    Args:
        card: What a user must know; its key and kind are filled in.
        identity: Settings with which it changes nothing.

    Example:
        >>> from rekindle.methods import Edit
        >>> words = dict(source="none", what="It halves.", when="Never.", cost="None.", deviations=("None.",))
        >>> @one_shot_method(Card(title="Halve", example=">>> 1", **words), identity={"factor": 1.0})
        ... class Halve:
        ...     factor: float = 0.5
        ...     def plan(self, graph, evidence, seed):
        ...         return Edits(tuple(Edit(name, lambda old: self.factor * old) for name in graph.parameters))
        >>> Halve().key, Halve.card.kind
        ('halve', 'one-shot')
    """
    return partial(_made, kind="one-shot", card=card, identity=identity)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def per_step_method(card: Card, *, identity: Mapping[str, Any]) -> Callable[[type[T]], type[T]]:
    """Make a class with an `init` a per-step method; see `one_shot_method`."""
    return partial(_made, kind="per-step", card=card, identity=identity)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def recycler_method(
    card: Card, *, identity: Mapping[str, Any], observes: tuple[Quantity, ...] = ()
) -> Callable[[type[T]], type[T]]:
    """Make a class with an `init` a recycler of units; see `one_shot_method`.

    Args:
        card: What a user must know.
        identity: Settings with which it recycles nothing.
        observes: What it sees of activations: any of "magnitude", "mean", "fired"; nothing if it looks at gradients.
    """
    return partial(_made, kind="recycler", card=card, identity=identity, observes=observes)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def optimizer_method(card: Card, *, identity: Mapping[str, Any]) -> Callable[[type[T]], type[T]]:
    """Make a class with a `build` a method that is an optimizer; see `one_shot_method`."""
    return partial(_made, kind="optimizer", card=card, identity=identity)


def _made(cls: type[T], *, kind: Kind, card: Card, identity: Mapping[str, Any], **more: Any) -> type[T]:
    if not callable(getattr(cls, NEEDS[kind], None)):
        raise SettingsError(
            expected=f"a {kind} method with a function {NEEDS[kind]!r}",
            got=f"{cls.__name__} without it",
            fix="write it as in CONTRIBUTING, or use the decorator of the kind that it is",
        )
    made: Any = settings(cls)
    made.key, made.kind = key_of(cls.__name__), kind
    made.card = dataclasses.replace(card, key=made.key, kind=kind)
    made.identity = dict(identity)
    for name, value in more.items():
        setattr(made, name, value)
    return cast(type[T], made)


def key_of(name: str) -> str:
    """Return the key that belongs to the name of a class.

    Example:
        >>> key_of("ShrinkPerturb"), key_of("L2Init")
        ('shrink_perturb', 'l2_init')
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def function_name(cls: Any) -> str:
    """Return the name of a method's public function, empty if it has none: those beside a training have a Keeper."""
    names = {"one-shot": f"{cls.key}_", "optimizer": cls.key}
    return names.get(cls.kind, "")


def scan_is_enough(method: Any) -> bool:
    """Tell whether a method, with its settings, looks at names, shapes and initializers of parameters alone.

    A model is not traced for such a method. A class says so by `scan_is_enough`, a constant or a property; the checks
    of `rekindle.testing` hold it to that. One that says nothing gets a traced model.

    Example:
        >>> from rekindle.methods.registry import method
        >>> scan_is_enough(method("welsr")), scan_is_enough(method("welsr:which=weights"))
        (True, False)
    """
    return bool(getattr(method, "scan_is_enough", False))


def kind_of(method: Any) -> Kind:
    """Return the kind of a method.

    Raises:
        SettingsError: It is none.
    """
    kind = getattr(method, "kind", None)
    if isinstance(method, type) or kind not in NEEDS:
        raise SettingsError(
            expected="a method: a spec string, or settings, made by a decorator of rekindle.methods",
            got=f"the class {method.__name__}" if isinstance(method, type) else f"{method!r}"[:200],
            fix='write for example "fire" or rk.Fire(scale="norm"); `rekindle list` shows all',
        )
    found: Kind = kind
    return found
