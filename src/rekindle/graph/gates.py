"""The matrices of recurrent layers by their names and shapes: one for each gate, where nobody ran the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import nn

from rekindle.graph.regions import MatrixView

NAME = re.compile(r"(?P<prefix>(?:.*\.)?)weight_(?P<kind>ih|hh|hr)(?P<suffix>(?:_l\d+)?(?:_reverse)?)")
UNCLEAR = "it looks like the weight of a recurrent layer, and {} does not tell how many gates it holds"


def gate_view(shape: tuple[int, ...], gates: int) -> MatrixView:
    """Return how a weight [gates * out, in] is seen as a matrix for each gate.

    Example:
        >>> import torch
        >>> gate_view((12, 5), 4).read(torch.zeros(12, 5)).shape
        torch.Size([4, 3, 5])
    """
    if gates == 1:
        return MatrixView(shape, (0,), (1,))
    return MatrixView((gates, shape[0] // gates, shape[1]), (1,), (2,), (0,))


def recurrent_weights(module: nn.RNNBase | nn.RNNCellBase) -> Iterator[tuple[str, MatrixView]]:
    """Yield the attributes of a recurrent module that hold weights, with their views."""
    for name in module._flat_weights_names if isinstance(module, nn.RNNBase) else ("weight_ih", "weight_hh"):
        found = NAME.fullmatch(name)
        if found:
            shape = tuple(getattr(module, name).shape)
            yield name, gate_view(shape, 1 if found["kind"] == "hr" else shape[0] // module.hidden_size)


def stored_gates(name: str, shapes: Mapping[str, tuple[int, ...]]) -> int | str | None:
    """Return how many gates a stored tensor holds, by its name and the shapes of those beside it.

    Returns:
        Their number; a sentence, where it looks like a recurrent layer's weight and its shape does not tell; None for
        any other tensor.

    Example:
        >>> stored_gates("rnn.weight_ih_l0", {"rnn.weight_ih_l0": (12, 5), "rnn.weight_hh_l0": (12, 3)})
        4
    """
    found = NAME.fullmatch(name)
    if found is None or len(shapes[name]) != 2:
        return None
    if found["kind"] == "hr":
        return 1
    own = f"{found['prefix']}weight_{{}}{found['suffix']}".format
    beside = shapes.get(own("hh"))
    if beside is None or len(beside) != 2 or shapes.get(own("ih"), beside)[0] != beside[0]:
        return UNCLEAR.format(f"{own('hh')} beside it" if beside is not None else "a missing weight_hh")
    projection = shapes.get(own("hr"))
    hidden = projection[1] if projection is not None else beside[1]
    known = hidden and beside[0] % hidden == 0 and beside[0] // hidden in ((4,) if projection else (1, 3, 4))
    return beside[0] // hidden if known else UNCLEAR.format(f"its shape {tuple(shapes[name])}")
