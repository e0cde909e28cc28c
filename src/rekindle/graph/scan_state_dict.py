"""Weights of a stored state dict by the names and shapes of its tensors alone: no code of the model is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rekindle.graph.gates import gate_view, stored_gates
from rekindle.graph.projections import LAYOUT, Projection, is_attention, projection, roles_are_known, split
from rekindle.graph.regions import MatrixView
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.weight import Weight, WeightRole

EMBEDDINGS = ("embed", "wte", "wpe", "position", "tok_emb", "pos_emb", "token_type")
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # GPT-2's Conv1D stores [in, out]; nanoGPT's Linear does not
SMALLEST = 2  # a matrix needs two rows and two columns


def scan_state_dict(shapes: Mapping[str, tuple[int, ...]]) -> UnitGraph:
    """Return a graph without unit groups: every tensor of two or more dimensions that is no embedding is a weight.

    Linear layers are read as [out, in], convolutions as [out, in, kernel...] (a grouped one looks like one with few
    inputs), GPT-2's Conv1D by its names and the shape of its fused projections. Those are split where their name leaves
    no doubt, as in `scan`; else they are one weight, and listed in `unclear`; so are the gates of recurrent layers
    (`graph.gates`). What a name cannot tell (other roles, ties, initializers) is left open.

    Example:
        >>> [w.name for w in scan_state_dict({"fc.weight": (3, 4), "fc.bias": (3,), "wte.weight": (9, 4)}).weights]
        ['fc.weight', 'wte.weight']
    """
    weights: list[Weight] = []
    found: dict[str, Projection] = {}  # by the path of the layer
    unclear: dict[str, str] = {}
    for whole in _weights(shapes):
        layer = whole.tensor.removesuffix(".weight")
        told = _told(layer, whole, shapes)
        found[layer] = told
        if told.unclear:
            unclear[whole.tensor] = told.unclear
        weights += split(whole, told.roles)
    return UnitGraph(
        weights=tuple(weights),
        groups=(),
        uncovered={},
        not_understood=(),
        aliases={},
        initializers={},
        gains={},
        parameters={name: tuple(shape) for name, shape in shapes.items()},
        traced=False,
        roles_known=roles_are_known(found, {place for layer in found if (place := _attention(layer))}),
        unclear=unclear,
    )


def _weights(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Weight]:
    transposed = _holds_conv1d(shapes)
    for name, shape in shapes.items():
        shape = tuple(shape)
        if len(shape) < 2 or min(shape[:2]) < SMALLEST:
            continue
        embedding = len(shape) == 2 and any(part in name.lower() for part in EMBEDDINGS)
        conv1d = transposed and len(shape) == 2 and name.endswith(CONV1D)
        out, in_ = (1, 0) if embedding or conv1d else (0, 1)
        role: WeightRole = "embedding" if embedding else "hidden"
        view = MatrixView(shape, (out,), (in_,), tuple(range(2, len(shape))))
        gates = stored_gates(name, shapes)
        if gates is not None:
            role, view = "hidden", gate_view(shape, gates if isinstance(gates, int) else 1)
        yield Weight(name, name, view, role, shape, module=name.rpartition(".")[0])


def _told(layer: str, weight: Weight, shapes: Mapping[str, tuple[int, ...]]) -> Projection:
    gates = stored_gates(weight.tensor, shapes)
    if gates is not None:
        return Projection(("hidden",), gates if isinstance(gates, str) else "")
    return Projection(("embedding",)) if weight.role == "embedding" else _projection(layer, weight)


def _holds_conv1d(shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Tell GPT-2's Conv1D from linear layers of the same names: a fused projection has more outputs than inputs."""
    fused = [shape for name, shape in shapes.items() if name.endswith("c_attn.weight") and len(shape) == 2]
    return all(shape[0] <= shape[1] for shape in fused)


def _projection(layer: str, weight: Weight) -> Projection:
    name = layer.rpartition(".")[2]
    told = projection(name, weight.out, weight.in_, attention=bool(_attention(layer)))
    if name == "in_proj" and len(told.roles) > 1:  # DeBERTa's is laid out by head, and nothing here tells it apart
        return Projection(unclear=LAYOUT)
    return told


def _attention(layer: str) -> str:
    """Return the path of the attention that a layer stands in, or nothing."""
    parts = layer.split(".")[:-1]
    last = max((n for n, part in enumerate(parts) if is_attention(part)), default=-1)
    return ".".join(parts[: last + 1])
