"""When one-shot methods act in somebody else's training: at given steps, every so many, or when data is new."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from rekindle.errors import KeeperError

START = "start"  # a word for step 0, in `at`


@dataclass(frozen=True)
class Schedule:
    """When one-shot methods act, counted in steps that optimizers really made.

    Attributes:
        at: After these steps; 0 is before the first.
        every: After every so many, from the first step on.
    """

    at: frozenset[int] = frozenset()
    every: int | None = None

    @property
    def on_new_data(self) -> bool:
        """Whether they act when the host has new data, which is so if nothing else was said."""
        return not self.at and self.every is None

    def due(self, step: int) -> bool:
        """Tell whether they act after a step.

        Example:
            >>> [step for step in range(8) if Schedule(frozenset({0, 5}), every=3).due(step)]
            [0, 3, 5, 6]
        """
        return step in self.at or (self.every is not None and step > 0 and step % self.every == 0)

    def reached(self, first: int, last: int) -> bool:
        """Tell whether they act in a training that goes from one step to another.

        Example:
            >>> Schedule(frozenset({5})).reached(0, 4), Schedule(every=3).reached(4, 6)
            (False, True)
        """
        often = self.every is not None and last // self.every > first // self.every
        return often or any(first <= step <= last for step in self.at)

    def __str__(self) -> str:
        told = [f"at={sorted(self.at)}"] if self.at else []
        return ", ".join(told + ([f"every={self.every}"] if self.every is not None else []))


def schedule_of(at: Any, every: Any, one_shot: Collection[Any]) -> Schedule:
    """Return the schedule that a user asked for.

    Args:
        at: A step, several, or "start"; None for none.
        every: A number of steps, or None.
        one_shot: The methods that it is for.

    Raises:
        KeeperError: They are no numbers of steps, or there is no method that acts then.
    """
    steps = _steps(at)
    if every is not None and (not _is_whole(every) or every < 1):
        raise KeeperError(expected="every: a number of steps from 1 on", got=repr(every), fix="write every=1000")
    if (steps or every is not None) and not one_shot:
        raise KeeperError(
            expected='a one-shot method beside at= or every=, as "fire"',
            got="methods that act at each step by themselves, or none",
            fix='leave at= and every= out; recyclers have a period of their own, as in "redo:period=1000"',
        )
    return Schedule(steps, None if every is None else int(every))


def _steps(at: Any) -> frozenset[int]:
    given = [] if at is None else list(at) if isinstance(at, Iterable) and not isinstance(at, str) else [at]
    steps = [0 if step == START else step for step in given]
    wrong = [step for step in steps if not _is_whole(step) or step < 0]
    if wrong or (at is not None and not steps):
        raise KeeperError(
            expected='at: numbers of steps from 0 on, or "start" for 0',
            got=repr(wrong[0] if wrong else at),
            fix='write at=[1000, 5000], or at="start" to treat a model before its first step; leave it out for none',
        )
    return frozenset(map(int, steps))


def _is_whole(step: Any) -> bool:
    return isinstance(step, Integral) and not isinstance(step, bool)  # numpy's integers too
