"""Where the normalization of a block stands: behind its last module, or before the modules that read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from rekindle.edits.edit import Skip
from rekindle.edits.inserted import is_standardized
from rekindle.edits.surgery import Side
from rekindle.graph.modules import submodule
from rekindle.observe.consumers import Consumers, consumers_of

BESIDE = (
    "not normalized: the model uses what it gives beside its output (the last states of a recurrent layer), which a "
    "normalization of the output would not reach"
)


@dataclass(frozen=True, eq=False)
class Placement:
    """A place for a normalization, and what passes there.

    Args:
        modules: Paths; the same two numbers stand at each.
        side: After the module, or before modules that read the same activation.
        values: What passes on the batch, without the normalization.
        calls: How often the block's module is called.
    """

    modules: tuple[str, ...]
    side: Side
    values: tuple[Tensor, ...]
    calls: int = 1


def find_placement(
    model: nn.Module, path: str, batch: Any, replaced: Mapping[str, Tensor], *, logits: bool = False
) -> Placement | Skip:
    """Return where the normalization of a block stands: after its activation.

    An activation that is a function, or a module that stands at several places, has no module behind which a
    normalization could stand. It then stands before every module that reads the activation, which is the same place:
    between the two there is at most pooling, reshaping and dropout.

    Args:
        model: The model; it is left as it was.
        path: The block's last module.
        batch: Input for the model.
        replaced: Values to use instead of the model's own, by name.
        logits: Whether the output of the model's last layer is normalized too.

    Returns:
        The place, or why there is none.
    """
    seen = consumers_of(model, path, batch, replaced)
    if is_standardized(submodule(model, path)):  # updated where it stands
        return Placement((path,), "after", seen.outputs, len(seen.outputs))
    if seen.beside:
        return Skip(path, BESIDE)
    if not seen.weighted and not logits:
        return Skip(path, "no weight reads its output, so it is the logits: not normalized; logits=True normalizes it")
    if not seen.activated:
        return Placement((path,), "after", seen.outputs, len(seen.outputs))
    if seen.elsewhere:
        return Skip(path, _no_place(seen))
    return Placement(seen.readers, "before", seen.inputs)


def _no_place(seen: Consumers) -> str:
    users = "; ".join(seen.elsewhere)
    return (
        f"not normalized: its activation is no module of its own, and it is used by {users}, so that no module "
        "could stand between; make it a module and name that in blocks="
    )
