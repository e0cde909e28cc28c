"""Weights of a stored state dict by the names and shapes of its tensors alone: no code of the model is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rekindle.graph.regions import MatrixView
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.weight import Weight, WeightRole

EMBEDDINGS = ("embed", "wte", "wpe", "position", "tok_emb", "pos_emb", "token_type")
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # GPT-2's Conv1D stores [in, out]
SMALLEST = 2  # a matrix needs two rows and two columns


def scan_state_dict(shapes: Mapping[str, tuple[int, ...]]) -> UnitGraph:
    """Return a graph without unit groups: every tensor of two or more dimensions that is no embedding is a weight.

    Linear layers are read as [out, in], convolutions as [out, in, kernel...] (a grouped one looks like one with few
    inputs), GPT-2's Conv1D by its names. What a name cannot tell (roles, ties, initializers) is left open.

    Example:
        >>> [w.name for w in scan_state_dict({"fc.weight": (3, 4), "fc.bias": (3,), "wte.weight": (9, 4)}).weights]
        ['fc.weight', 'wte.weight']
    """
    return UnitGraph(
        weights=tuple(_weights(shapes)),
        groups=(),
        uncovered={},
        not_understood=(),
        aliases={},
        initializers={},
        gains={},
        parameters={name: tuple(shape) for name, shape in shapes.items()},
        traced=False,
    )


def _weights(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Weight]:
    for name, shape in shapes.items():
        shape = tuple(shape)
        if len(shape) < 2 or min(shape[:2]) < SMALLEST:
            continue
        embedding = len(shape) == 2 and any(part in name.lower() for part in EMBEDDINGS)
        out, in_ = (1, 0) if embedding or (len(shape) == 2 and name.endswith(TRANSPOSED)) else (0, 1)
        role: WeightRole = "embedding" if embedding else "hidden"
        view = MatrixView(shape, (out,), (in_,), tuple(range(2, len(shape))))
        yield Weight(name, name, view, role, shape, module=name.rpartition(".")[0])
