"""What every method promises, as checks that anyone can run: the way to know that a method is right.

rekindle.testing.check_method("fire")                              # over the whole zoo
rekindle.testing.check_method(MyMethod(), [my_zoo_model])
rekindle.testing.check_method("redo:period=1,threshold=0.9")        # settings with which it acts within a few steps
"""

from __future__ import annotations

import dataclasses
import doctest
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rekindle.errors import SettingsError
from rekindle.methods.card import Kind
from rekindle.methods.kinds import PROTOCOLS, kind_of
from rekindle.methods.registry import methods
from rekindle.testing.aged import Check
from rekindle.testing.one_shot_checks import ONE_SHOT
from rekindle.testing.optimizer_checks import OPTIMIZER
from rekindle.testing.step_checks import PER_STEP, RECYCLER
from rekindle.testing.zoo import ZOO, ZooModel, zoo

CHECKS: Mapping[Kind, tuple[Check, ...]] = {
    "one-shot": ONE_SHOT,
    "per-step": PER_STEP,
    "recycler": RECYCLER,
    "optimizer": OPTIMIZER,
}


def check_method(method: Any, members: Sequence[ZooModel | str] | None = None) -> None:
    """Run every check for the kind of a method.

    Args:
        method: A spec string or settings, of any of the four kinds. A per-step method or recycler needs settings with
            which it acts within a few steps.
        members: Models to try it on, or their names in `rekindle.testing.ZOO`; the whole zoo by default.

    Raises:
        SettingsError: There is no such method or model.
        AssertionError: The method breaks promises; the message says for each of them on which model, which and why.
    """
    (settings,) = methods(method)
    broken = _broken(str(settings), (check_card, check_settings), settings)
    for member in zoo() if members is None else map(_member, members):
        broken += _broken(f"{settings} on {member.name}", CHECKS[kind_of(settings)], settings, member)
    _raise(broken)


def _member(named: ZooModel | str) -> ZooModel:
    if isinstance(named, str) and named not in ZOO:
        raise SettingsError(
            expected=f"a zoo model: {', '.join(ZOO)}", got=repr(named), fix="use one of the names above"
        )
    return ZOO[named] if isinstance(named, str) else named


def check_on(method: Any, member: ZooModel) -> None:
    """Run every check of a method's kind on it and one model; see `check_method`, which does so for each model."""
    (settings,) = methods(method)
    _raise(_broken(f"{settings} on {member.name}", CHECKS[kind_of(settings)], settings, member))


def _broken(subject: str, checks: Iterable[Callable[..., None]], *given: Any) -> list[tuple[str, Exception]]:
    """Run all checks, also when one has failed, and return for each that did the words for it and what it raised."""
    found = []
    for check in checks:
        try:
            check(*given)
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            found.append((f"{subject}: {check.__name__}: {reason}", error))
    return found


def _raise(broken: Sequence[tuple[str, Exception]]) -> None:
    """Raise one error that tells all that is broken; its cause is the first of them."""
    if broken:
        raise AssertionError("\n".join(words for words, _ in broken)) from broken[0][1]


def check_card(method: Any) -> None:
    """The card is complete and its example runs."""
    assert not method.card.missing(), f"the card of {method.key} lacks {method.card.missing()}"
    assert method.card.key == method.key, f"the card of {method.key} is that of {method.card.key}"
    test = doctest.DocTestParser().get_doctest(method.card.example, {}, method.key, None, 0)
    assert test.examples, f"the card of {method.key} has no example"
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0, f"the example on the card of {method.key} fails"


def check_settings(method: Any) -> None:
    """The method has what its kind needs, its settings are values, and wrong ones are refused by name."""
    cls = type(method)
    assert isinstance(method, PROTOCOLS[kind_of(method)]), f"{method.key} lacks something that its kind needs"
    fields = dataclasses.fields(cls)
    assert method == dataclasses.replace(method), "two equal settings are not equal"
    unknown = sorted(set(method.identity) - {field.name for field in fields})
    assert not unknown, f"identity names settings that do not exist: {unknown}"
    for name in (*(field.name for field in fields), "no_such_setting"):
        try:
            cls(**{name: object()})
        except SettingsError as error:
            assert name in str(error), f"the error about {name} does not name it"
        else:
            raise AssertionError(f"{name}=object() was accepted")
