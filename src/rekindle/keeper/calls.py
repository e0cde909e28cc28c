"""Whether a Keeper is called as it must be: what is forgotten in somebody else's loop is told, once."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

from rekindle.edits.optimizer_state import inner
from rekindle.errors import KeeperWarning

PATIENCE = 100  # steps of one optimizer without a step of the Keeper; several optimizers take turns in some loops


class Calls:
    """Follows the steps of the optimizers beside those of the Keeper."""

    def __init__(self, optimizers: Sequence[Any], *, needs_step: bool, needs_penalty: bool) -> None:
        """Begin to follow; `close` ends it."""
        self._needs_step, self._needs_penalty = needs_step, needs_penalty
        self._since: dict[int, int] = {}  # steps of each optimizer since the Keeper's last
        self._ever = self._asked = False
        self._kept = 0
        self._told: set[str] = set()
        known = [inner(each) for each in optimizers]
        self._followed = bool(known) and all(hasattr(each, "register_step_post_hook") for each in known)
        mine = weakref.ref(self)
        self._handles = [
            each.register_step_post_hook(_Follow(mine, n)) for n, each in enumerate(known) if self._followed
        ]

    def penalty(self) -> None:
        """Note that the penalty was asked for."""
        self._asked = True

    def optimizer_stepped(self, number: int) -> None:
        """Note a step of an optimizer."""
        self._ever = True
        self._since[number] = self._since.get(number, 0) + 1
        if self._needs_step and self._since[number] == PATIENCE:
            self._tell(
                f"keeper.step() was not called for {PATIENCE} steps of the optimizer: the methods do nothing without "
                "it; call it once after each optimizer.step()"
            )

    def keeper_stepped(self, *, skipped: bool) -> None:
        """Note a step of the Keeper, and tell what is missing beside it."""
        idle = self._followed and not any(self._since.values())
        self._since.clear()
        if skipped:
            return
        self._kept += 1
        if self._needs_penalty and not self._asked:
            self._tell(
                "keeper.penalty() was not asked for before this step: add it to the loss, or the method does nothing"
            )
        self._asked = False
        if idle and self._needs_step:
            self._tell(
                "the optimizer that the Keeper knows has not made a step since the last keeper.step(): after a new "
                "optimizer (a second fit) call keeper.rebind(optimizer), and for a step that GradScaler skipped "
                "keeper.step(skipped=True)"
            )

    def close(self) -> None:
        """Stop following."""
        if self._needs_step and self._ever and not self._kept:
            self._tell("keeper.step() was never called: the methods did nothing; call it after each optimizer.step()")
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            warnings.warn(words, KeeperWarning, stacklevel=4)


class _Follow:
    """The hook on an optimizer; it keeps no Keeper alive."""

    def __init__(self, calls: weakref.ref[Calls], number: int) -> None:
        self._calls, self._number = calls, number

    def __call__(self, *_: Any) -> None:
        calls = self._calls()
        if calls is not None:
            calls.optimizer_stepped(self._number)
