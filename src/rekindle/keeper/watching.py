"""What a Keeper's recyclers see of a training, and what they can treat."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from rekindle.edits.compiler import reset_compiler
from rekindle.errors import KeeperError
from rekindle.graph import UnitGraph
from rekindle.keeper.checks import refuse_nothing_to_recycle
from rekindle.methods.kept import frozen_in
from rekindle.methods.kinds import PerStepMethod
from rekindle.methods.recycling import recyclable
from rekindle.observe.activations import Watch


def begin_watching(
    methods: Sequence[PerStepMethod], model: nn.Module, graph: UnitGraph, example: Any, *, frozen: bool
) -> tuple[Watch | None, dict[str, str]]:
    """Put in the hooks that methods need, if any, and return what recyclers cannot treat, with the reasons.

    Raises:
        KeeperError: There is no example, or a recycler finds nothing to recycle.
    """
    wanted = [quantity for one in methods for quantity in getattr(one, "observes", ())]
    recyclers = [one for one in methods if one.kind == "recycler"]
    if not wanted and not recyclers:
        return None, {**graph.adapters, **graph.not_plain}
    if example is None:
        raise KeeperError(
            expected="example= for recyclers, which must see where units are written and read",
            got="none",
            fix="pass example= with an input of your model",
        )
    groups, skipped = recyclable(graph, () if frozen else frozen_in(model))
    skipped |= {**graph.adapters, **graph.uncovered}
    watch = Watch(model, groups, wanted, example) if wanted else None
    try:
        unseen = watch.unseen if watch is not None else {}
        refuse_nothing_to_recycle(recyclers, [group.name for group in groups], skipped | unseen, unseen)
        if watch is not None:
            reset_compiler()  # a model that was compiled and has run does not notice new hooks
    except BaseException:
        if watch is not None:
            watch.close()
        raise
    return watch, skipped | unseen


@contextlib.contextmanager
def paused(watch: Watch | None, *, unhooked: bool = False) -> Iterator[None]:
    """Keep what is run inside out of what is seen.

    Args:
        watch: What sees; nothing is done without.
        unhooked: Take the hooks out as well, so that modules which are copied inside have none.
    """
    if watch is None:
        yield
        return
    was = watch.active
    try:
        watch.active = False
        if unhooked:
            watch.close()
        yield
    finally:
        watch.active = was
        if unhooked:
            watch.open()
            reset_compiler()
