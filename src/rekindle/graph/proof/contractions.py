"""Operations that sum over an axis of a product, as ATen has them below Python: who multiplies whom along what.

Linear layers, matrix products and einsum arrive here as one of a few; a weight among the operands makes it a reader
of what lies along the axis.
"""

from __future__ import annotations

from dataclasses import dataclass

from rekindle.graph.proof.tape import At, Node


@dataclass(frozen=True)
class Side:
    """One operand of a contraction.

    Args:
        value: The operand's value on the tape.
        other: The value that it is multiplied with.
        dim: The dimension of the operand that is summed over.
    """

    value: int
    other: int
    dim: int


# operation: for each of two operands its position and the dimension that is summed over
_OPERANDS = {
    "mm": ((0, 1), (1, 0)),
    "addmm": ((1, 1), (2, 0)),
    "_addmm_activation": ((1, 1), (2, 0)),
    "bmm": ((0, 2), (1, 1)),
    "baddbmm": ((1, 2), (2, 1)),
    "addbmm": ((1, 2), (2, 1)),
    "mv": ((0, 1), (1, 0)),
    "addmv": ((1, 1), (2, 0)),
    "dot": ((0, 0), (1, 0)),
    "vdot": ((0, 0), (1, 0)),
    "linear": ((0, -1), (1, -1)),
    "mkldnn_linear": ((0, -1), (1, -1)),
    "convolution": ((0, 1), (1, 1)),
}
_TRANSPOSED = 6  # position in the arguments of a convolution


def sides(node: Node) -> tuple[Side, ...]:
    """Return the two operands of a contraction, each as seen from itself; nothing for other operations."""
    places = _OPERANDS.get(node.op)
    if places is None:
        return ()
    (left, left_dim), (right, right_dim) = places
    if node.op == "convolution" and len(node.args) > _TRANSPOSED and node.args[_TRANSPOSED]:
        right_dim = 0
    a, b = node.args[left], node.args[right]
    if not (isinstance(a, At) and isinstance(b, At)):
        return ()
    return Side(a.value, b.value, left_dim), Side(b.value, a.value, right_dim)
