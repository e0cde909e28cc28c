"""Operations that multiply streams of units, attention above all; and what a model does around its operations."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tests.graph.expected_notation import G, rows, w, wb
from tests.graph.operation_cases import C2, E_H, HEAD, L, case, data, e_h, place, weight

# Products -------------------------------------------------------------------------------------------------------------


def attend(m: Any, x: Tensor, turn: Callable[[Tensor], Tensor] = lambda y: y, mask: Tensor | None = None) -> Tensor:
    """Three heads of four units, by hand."""
    y = m.e(x)
    q, k, v = (part(y).view(*x.shape[:2], 3, 4).transpose(1, 2) for part in (m.q, m.k, m.v))
    scores = turn(q) @ turn(k).transpose(-1, -2)
    mixed = (scores if mask is None else scores + mask).softmax(-1) @ v
    return m.h(y + m.o(mixed.transpose(1, 2).flatten(2)))


def attention() -> dict[str, Any]:
    return {"e": L(5, 12), **{name: L(12, 12) for name in "qkvo"}, "h": L(12, 2)}


def einsum_attention(m: Any, x: Tensor) -> Tensor:
    y = m.e(x)
    q, k, v = (torch.einsum("btd,dhk->bthk", y, weight) for weight in (m.q, m.k, m.v))
    scores = torch.einsum("bthk,bshk->bhts", q, k).softmax(-1)
    return m.h(y + torch.einsum("bthk,hkd->btd", torch.einsum("bhts,bshk->bthk", scores, v), m.o))


def angles(x: Tensor, pairs: int) -> Tensor:
    return torch.arange(x.shape[-2])[:, None] * torch.linspace(0.5, 1, pairs)


def half_turn(x: Tensor) -> Tensor:
    angle = angles(x, 2).repeat(1, 2)
    return x * angle.cos() + torch.cat([-x[..., 2:], x[..., :2]], -1) * angle.sin()


def pair_turn(x: Tensor) -> Tensor:
    angle, (a, b) = angles(x, 2), (x[..., 0::2], x[..., 1::2])
    turned = [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()]
    return torch.stack(turned, -1).flatten(-2)


STREAM = G(12, wb("e", "o"), w("q", "k", "v", "h"), kind="stream")
SCORE, VALUES = G(12, wb("q"), wb("k"), kind="score"), G(12, wb("v"), w("o"))
PAIRS = [[4 * head + n, 4 * head + n + 2] for head in range(3) for n in range(2)]
NEXT = [[2 * n, 2 * n + 1] for n in range(6)]
PRODUCTS = [
    case(
        "matmul",
        lambda m, x: m.h(torch.addmm(m.b, x @ m.a, m.c)),
        lambda: {"a": weight(4, 5), "b": weight(6), "c": weight(5, 6), "h": L(6, 2)},
        data(3, 4),
        G(5, {"a"}, {"c"}),
        G(6, {"b", "c"}, w("h")),
        HEAD,
    ),
    case(
        "grouped_and_transposed_convolution",
        lambda m, x: m.h(m.t(m.g(m.e(x))).mean((2, 3))),
        lambda: {
            "e": C2(3, 4, 1),
            "g": C2(4, 6, 3, groups=2),
            "t": nn.ConvTranspose2d(6, 4, 2, groups=2),
            "h": L(4, 2),
        },
        data(2, 3, 5, 5),
        G(4, wb("e"), w("g"), at={("outgoing", "g.weight"): place((2, 3, 2, 3, 3), (0, 2), rows(4))}),
        G(6, wb("g"), w("t"), at={("outgoing", "t.weight"): place((6, 2, 2, 2), (0,), rows(6))}),
        G(4, wb("t"), w("h"), at={("incoming", "t.weight"): place((2, 3, 2, 2, 2), (0, 2), rows(4))}),
        HEAD,
    ),
    case(
        "depthwise_convolution",
        lambda m, x: m.h(m.d(m.e(x)).mean((2, 3))),
        lambda: {"e": C2(3, 4, 1), "d": C2(4, 4, 3, groups=4), "h": L(4, 2)},
        data(2, 3, 5, 5),
        G(4, wb("e"), w("d")),
        G(4, wb("d"), w("h")),
        HEAD,
        swap=False,
    ),
    case(
        "embedding_also_as_head",
        lambda m, x: F.linear(m.a(m.e(x)), m.e.weight),
        lambda: {"e": nn.Embedding(9, 6), "a": L(6, 6)},
        torch.arange(8).view(2, 4),
        G(6, w("e") | wb("a"), w("a", "e")),  # one tensor: its columns are written and read
        G(9, w("e"), kind="output"),
    ),
    case(
        "weight_norm",
        lambda m, x: m.h(F.relu(m.a(m.e(x)))),
        lambda: {"e": L(4, 6), "a": weight_norm(L(6, 5)), "h": L(5, 2)},
        data(3, 4),
        G(6, wb("e"), {"a.parametrizations.weight.original1"}),
        G(5, {"a.bias", *(f"a.parametrizations.weight.original{n}" for n in (0, 1))}, w("h")),
        HEAD,
    ),
    case("attention", attend, attention, data(2, 6, 5), STREAM, SCORE, VALUES, HEAD),
    case(
        "attention_with_halves_turned",
        lambda m, x: attend(m, x, half_turn),
        attention,
        data(2, 6, 5),
        STREAM,
        G(6, wb("q"), wb("k"), kind="score", at={("outgoing", "k.weight"): place((12, 12), (0,), PAIRS)}),
        VALUES,
        HEAD,
        swap=False,
    ),
    case(
        "attention_by_einsum",
        einsum_attention,
        lambda: {"e": L(5, 12), **{n: weight(12, 3, 4) for n in "qkv"}, "o": weight(3, 4, 12), "h": L(12, 2)},
        data(2, 6, 5),
        G(12, wb("e") | {"o"}, {"q", "k", "v"} | w("h"), kind="stream"),
        G(12, {"q"}, {"k"}, kind="score"),
        G(12, {"v"}, {"o"}, at={("outgoing", "o"): place((3, 4, 12), (0, 1), rows(12))}),
        HEAD,
    ),
    case(
        "cross_attention_of_other_widths",
        lambda m, x, c: m.h(m.a(m.e(x), m.c(c), m.d(c))[0]),
        lambda: {
            "e": L(5, 12),
            "c": L(4, 7),
            "d": L(4, 9),
            "a": nn.MultiheadAttention(12, 3, kdim=7, vdim=9, batch_first=True, bias=False),
            "h": L(12, 2),
        },
        (data(2, 6, 5), data(2, 4, 4)),
        G(12, wb("e"), {"a.q_proj_weight"}),
        G(7, wb("c"), {"a.k_proj_weight"}),
        G(9, wb("d"), {"a.v_proj_weight"}),
        G(12, {"a.q_proj_weight"}, {"a.k_proj_weight"}, kind="score"),
        G(12, {"a.v_proj_weight"}, {"a.out_proj.weight"}),
        G(12, {"a.out_proj.weight"}, w("h")),
        HEAD,
    ),
]

# The model around the operations ------------------------------------------------------------------------------------


def partly_without_gradient(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = m.e(x)
    with torch.autocast("cpu", torch.bfloat16):
        return m.h(F.relu(y))


MODELS = [
    case("no_grad_and_autocast", partly_without_gradient, e_h, data(3, 4), *E_H),
    case(
        "outputs_in_a_dict",
        lambda m, x: {"q": m.h(F.relu(m.e(x))), "more": (m.g(F.relu(m.e(x))),)},
        lambda: e_h() | {"g": L(6, 3)},
        data(3, 4),
        G(6, wb("e"), w("h", "g")),
        HEAD,
        G(3, wb("g"), kind="output"),
    ),
    case(
        "inputs_by_name",
        lambda m, observation, action: m.h(F.relu(m.e(torch.cat([observation, action], -1)))),
        e_h,
        {"action": data(3, 1), "observation": data(3, 3)},
        *E_H,
    ),
    case(
        "raw_input_among_units",
        lambda m, x: m.h(torch.cat([x, F.relu(m.e(x))], -1)),
        lambda: {"e": L(4, 6), "h": L(10, 2)},
        data(3, 4),
        G(6, wb("e"), w("h"), at={("outgoing", "h.weight"): place((2, 10), (1,), rows(6, 4))}),
        HEAD,
    ),
    case(
        "unused_parameter",
        lambda m, x: m.h(m.e(x)),
        lambda: e_h() | {"u": weight(3)},
        data(3, 4),
        *E_H,
        uncovered={"u"},
    ),
    case("training_mode_and_dropout", lambda m, x: m.h(F.dropout(m.e(x), 0.5, m.training)), e_h, data(3, 4), *E_H),
    case("no_batch_dimension", lambda m, x: m.h(m.e(x)), e_h, data(4), *E_H),
    case(
        "image_without_batch_dimension",
        lambda m, x: m.h(F.max_pool2d(m.e(x), 2).flatten()),
        lambda: {"e": C2(3, 6, 3), "h": L(24, 2)},
        data(3, 6, 6),
        *E_H,
    ),
    case(
        "width_one",
        lambda m, x: m.h(m.b(m.a(x))),
        lambda: {"a": L(4, 1), "b": L(1, 1), "h": L(1, 2)},
        data(3, 4),
        G(1, wb("a"), w("b")),
        G(1, wb("b"), w("h")),
        HEAD,
    ),
]
