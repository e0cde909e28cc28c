"""Whether a saved state is of the training that is resumed: what differs is refused, since nobody would notice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from rekindle.errors import KeeperError
from rekindle.graph.modules import parameters_of
from rekindle.integrations.schedule import Schedule

PARTS = {"methods", "options", "at", "every", "structure", "keeper", "rates"}


def refuse_other(saved: Mapping[str, Any], methods: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """Refuse a state of other methods, settings or options, such as another seed.

    Raises:
        KeeperError: It is one.
    """
    own = [str(one) for one in methods]
    if not saved.keys() >= PARTS or (saved["methods"], saved["options"]) != (own, dict(options)):
        raise KeeperError(
            expected=f"a state saved with {_told(own, options)}",
            got=_told(saved.get("methods", ()), saved.get("options", {})),
            fix="resume with the methods, settings and options of before; for others begin a new training with the "
            "checkpoint's weights instead of resuming it",
        )


def _told(methods: Sequence[str], options: Mapping[str, Any]) -> str:
    named = [f"{name}={value}" for name, value in options.items()]
    return ", ".join([f"the methods {' + '.join(methods)}" if methods else "no methods", *named])


def structure_of(model: nn.Module) -> dict[str, list[int]]:
    """Return the shapes of a model's parameters by their names, which no wrapper changes."""
    return {name: list(parameter.shape) for name, parameter in parameters_of(model).items()}


def refuse_structure(saved: Mapping[str, Any], model: nn.Module) -> None:
    """Refuse a model that is made of other parameters than the one that was saved, as before a method added some.

    Hosts load what fits of a checkpoint and go on.

    Raises:
        KeeperError: It is one.
    """
    before, now = saved["structure"], structure_of(model)
    other = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if other:
        raise KeeperError(
            expected="a model with the parameters that it had when the state was saved",
            got=f"{len(other)} others, as {other[0]}: {now.get(other[0], 'none')} now, "
            f"{before.get(other[0], 'none')} then",
            fix="a method that changes the structure has to be applied to the model again before its checkpoint is "
            "loaded; after a change of your own begin anew, with a new callback",
        )


def refuse_missed(saved: Mapping[str, Any], schedule: Schedule) -> None:
    """Refuse steps that are past and were not asked for then: what is asked for would not have happened.

    Raises:
        KeeperError: There are some.
    """
    then, steps = Schedule(frozenset(saved["at"]), saved["every"]), saved["keeper"]["steps"]
    missed = sorted(step for step in schedule.at if step <= steps and not then.due(step))
    if missed:
        raise KeeperError(
            expected=f"at= with steps to come beside those of before ({then or 'none'})",
            got=f"{missed}, and {steps} steps are made",
            fix="leave them out; to treat the model now, load the checkpoint's weights and begin a new training with "
            'at="start"',
        )
