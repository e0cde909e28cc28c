"""Which operand meets which, along which axis."""

import pytest
import torch
import torch.nn.functional as F

from rekindle.graph.proof.contractions import sides
from rekindle.graph.proof.recorder import record


def axes(call, *shapes):
    """Return for each of the operands, by name, the dimension that is summed over."""
    tensors = {f"t{n}": torch.randn(*shape) for n, shape in enumerate(shapes)}
    tape = record(lambda own, _: [call(*own.values())], tensors, set(), None)
    (node,) = [node for node in tape.nodes if sides(node)]
    return {tape.names_behind(side.value)[0]: (side.dim, tape.names_behind(side.other)[0]) for side in sides(node)}


@pytest.mark.parametrize(
    ("call", "shapes", "expected"),
    [
        (torch.mm, [(2, 3), (3, 4)], {"t0": (1, "t1"), "t1": (0, "t0")}),
        (lambda b, x, w: torch.addmm(b, x, w), [(4,), (2, 3), (3, 4)], {"t1": (1, "t2"), "t2": (0, "t1")}),
        (torch.bmm, [(5, 2, 3), (5, 3, 4)], {"t0": (2, "t1"), "t1": (1, "t0")}),
        (torch.mv, [(2, 3), (3,)], {"t0": (1, "t1"), "t1": (0, "t0")}),
        (torch.dot, [(3,), (3,)], {"t0": (0, "t1"), "t1": (0, "t0")}),
        (F.conv1d, [(2, 3, 9), (4, 3, 2)], {"t0": (1, "t1"), "t1": (1, "t0")}),
        (F.conv_transpose1d, [(2, 3, 9), (3, 4, 2)], {"t0": (1, "t1"), "t1": (0, "t0")}),
    ],
)
def test_operands(call, shapes, expected):
    assert axes(call, *shapes) == expected


@pytest.mark.parametrize("call", [lambda x, w: F.linear(x, w), lambda x, w: torch.einsum("bti,oi->bto", x, w)])
def test_layers_arrive_as_one_contraction(call):
    assert len(axes(call, (2, 5, 3), (4, 3))) == 2


def test_other_operations_have_no_sides():
    tape = record(lambda own, x: [torch.softmax(x * 2, -1)], {}, set(), torch.ones(2, 2))
    assert tape.nodes and not any(sides(node) for node in tape.nodes)
