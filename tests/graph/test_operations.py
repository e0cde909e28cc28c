"""Each family of operations on a module of a few lines, against unit groups written by hand.

Three independent checks a module: the groups are the expected ones, `verify` proves them on the model, and two units of
a group can change places in all their slots without a change at the output.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.graph.expected_notation import G, Place, bn, flattened, rows, w, wb
from tests.graph.test_groups import assert_groups
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from rekindle.core.errors import GraphError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.export import as_call, at_rest

L, C1, C2 = nn.Linear, nn.Conv1d, nn.Conv2d
HEAD = G(2, wb("h"), kind="output")


class Net(nn.Module):
    def __init__(self, forward: Callable[..., Any], parts: dict[str, Any]) -> None:
        super().__init__()
        self.compute = forward
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.compute(self, *args, **kwargs)


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    example: Any
    groups: list[G]
    swap: bool = True  # False: places matter (rotations, grouped convolutions), so units cannot change places
    uncovered: frozenset[str] = frozenset()

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build()


def case(
    name: str, forward: Callable[..., Any], parts: Callable[[], dict[str, Any]], example: Any, *groups: G, **more: Any
) -> Case:
    return Case(name, lambda: Net(forward, parts()), example, list(groups), **more)


def data(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * 0.5)


def place(view: tuple[int, ...], dims: tuple[int, ...], index: list[list[int]]) -> Place:
    return Place(view, dims, index)


# Element by element ---------------------------------------------------------------------------------------------------


def in_place_residual(m: Any, x: Tensor) -> Tensor:
    y = m.e(x).relu_()
    y += m.a(y)
    return m.h(y.mul_(2).add_(1))


def learned_tokens(m: Any, x: Tensor) -> Tensor:
    return m.h((torch.cat([m.cls.expand(len(x), -1, -1), m.e(x)], 1) + m.positions).mean(1))


def squeeze_excite(m: Any, x: Tensor) -> Tensor:
    y = m.e(x)
    gate = m.up(F.relu(m.down(F.adaptive_avg_pool2d(y, 1)))).sigmoid()
    return m.h((y * gate).mean((2, 3)))


def e_h() -> dict[str, Any]:
    return {"e": L(4, 6), "h": L(6, 2)}


def e_a_h() -> dict[str, Any]:
    return {"e": L(4, 6), "a": L(4, 6), "h": L(6, 2)}


E_H = [G(6, wb("e"), w("h")), HEAD]
ELEMENTWISE = [
    case("activation", lambda m, x: m.h(F.gelu(m.e(x)).clamp(-1, 1)), e_h, data(3, 4), *E_H),
    case("constants", lambda m, x: m.h(1 - 2 * m.e(x.float() / 255)), e_h, data(3, 4), *E_H),
    case(
        "in_place_residual",
        in_place_residual,
        lambda: {"e": L(4, 6), "a": L(6, 6), "h": L(6, 2)},
        data(3, 4),
        G(6, wb("e", "a"), w("a", "h"), kind="stream"),
        HEAD,
    ),
    case(
        "gate",
        lambda m, x: m.h(F.silu(m.e(x)) * m.a(x)),
        e_a_h,
        data(3, 4),
        G(6, wb("e", "a"), w("h"), kind="gated"),
        HEAD,
    ),
    case(
        "either", lambda m, x: m.h(torch.maximum(m.e(x), m.a(x))), e_a_h, data(3, 4), G(6, wb("e", "a"), w("h")), HEAD
    ),
    case(
        "one_unit_gates_all",
        lambda m, x: m.h(m.g(x).sigmoid() * m.e(x)),
        lambda: e_h() | {"g": L(4, 1)},
        data(3, 4),
        G(1, wb("g")),
        *E_H,
    ),
    case(
        "slope_of_prelu",
        lambda m, x: m.h(m.p(m.e(x)).mean((2, 3))),
        lambda: {"e": C2(3, 6, 3), "p": nn.PReLU(6), "h": L(6, 2)},
        data(2, 3, 6, 6),
        G(6, wb("e"), w("h"), norms=w("p")),
        HEAD,
    ),
    case(
        "layer_scale",
        lambda m, x: m.h(m.e(x) + m.scale * m.a(F.relu(m.e(x)))),
        lambda: {"e": L(4, 6), "a": L(6, 6), "scale": weight(6), "h": L(6, 2)},
        data(3, 4),
        G(6, wb("e", "a"), w("a", "h"), norms={"scale"}, kind="stream"),
        HEAD,
    ),
    case(
        "learned_tokens",
        learned_tokens,
        lambda: {"e": L(4, 6), "cls": weight(1, 1, 6), "positions": weight(1, 6, 6), "h": L(6, 2)},
        data(2, 5, 4),
        G(6, wb("e") | {"cls", "positions"}, w("h"), at={("incoming", "positions"): place((1, 6, 6), (2,), rows(6))}),
        HEAD,
    ),
    case(
        "squeeze_excite",
        squeeze_excite,
        lambda: {"e": C2(3, 6, 3), "down": C2(6, 2, 1), "up": C2(2, 6, 1), "h": L(6, 2)},
        data(2, 3, 6, 6),
        G(6, wb("e", "up"), w("down", "h"), kind="gated"),
        G(2, wb("down"), w("up")),
        HEAD,
    ),
]

# Rearranging ----------------------------------------------------------------------------------------------------------


def u_net(m: Any, x: Tensor) -> Tensor:
    skip = F.relu(m.down(x))
    low = F.relu(m.low(F.max_pool2d(skip, 2)))
    return m.h(torch.cat([F.interpolate(low, scale_factor=2, mode="bilinear"), skip], 1).mean((2, 3)))


def option_a(m: Any, x: Tensor) -> Tensor:
    y = F.relu(m.e(x))
    return m.h((m.a(y) + F.pad(y[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))).mean((2, 3)))


REARRANGE = [
    case(
        "flatten",
        lambda m, x: m.h(m.e(x).flatten(1)),
        lambda: {"e": C2(3, 6, 3), "h": L(24, 2)},
        data(2, 3, 4, 4),
        G(6, wb("e"), w("h"), at={("outgoing", "h.weight"): place((2, 24), (1,), flattened(6, 4))}),
        HEAD,
    ),
    case(
        "skip_by_concatenation",
        u_net,
        lambda: {"down": C2(3, 6, 3, padding=1), "low": C2(6, 4, 3, padding=1), "h": L(10, 2)},
        data(2, 3, 8, 8),
        G(6, wb("down"), w("low", "h"), at={("outgoing", "h.weight"): place((2, 10), (1,), rows(6, 4))}),
        G(4, wb("low"), w("h")),
        HEAD,
    ),
    case(
        "shortcut_by_padding",
        option_a,
        lambda: {"e": C2(3, 4, 3, padding=1), "a": C2(4, 6, 3, 2, 1), "h": L(6, 2)},
        data(2, 3, 8, 8),
        G(
            4,
            wb("e", "a"),
            w("a", "h"),
            kind="stream",
            at={("incoming", "a.weight"): place((6, 4, 3, 3), (0,), rows(4, 1))},
        ),
        G(2, wb("a"), w("h"), at={("outgoing", "h.weight"): place((2, 6), (1,), [[0], [5]])}),
        HEAD,
    ),
    case(
        "pixel_shuffle",
        lambda m, x: m.h(F.pixel_shuffle(m.e(x), 2)).mean((2, 3)),
        lambda: {"e": C2(3, 12, 3), "h": C2(3, 2, 1)},
        data(2, 3, 5, 5),
        G(3, wb("e"), w("h"), at={("incoming", "e.weight"): place((12, 3, 3, 3), (0,), flattened(3, 4))}),
        HEAD,
    ),
    case(
        "slices_with_readers_of_their_own",
        lambda m, x: m.h(m.e(x)[:, :4]) + m.g(m.e(x)[:, 2:]),
        lambda: {"e": L(4, 6), "h": L(4, 2), "g": L(4, 2)},
        data(3, 4),
        G(2, wb("e"), w("h")),
        G(2, wb("e"), w("h", "g"), at={("outgoing", "g.weight"): place((2, 4), (1,), [[0], [1]])}),
        G(2, wb("e"), w("g")),
        G(2, wb("h", "g"), kind="output"),
    ),
    case(
        "both_signs",
        lambda m, x: m.h(torch.cat([F.relu(m.e(x)), F.relu(-m.e(x))], -1)),
        lambda: {"e": L(4, 6), "h": L(12, 2)},
        data(3, 4),
        G(6, wb("e"), w("h"), at={("outgoing", "h.weight"): place((2, 12), (1,), [[n, n + 6] for n in range(6)])}),
        HEAD,
    ),
    case(
        "channel_shuffle",
        lambda m, x: m.h(F.channel_shuffle(m.e(x), 2).mean((2, 3))),
        lambda: {"e": C2(3, 6, 3), "h": L(6, 2)},
        data(2, 3, 5, 5),
        G(
            6,
            wb("e"),
            w("h"),
            at={
                ("incoming", "e.weight"): place((6, 3, 3, 3), (0,), rows(6)),
                ("outgoing", "h.weight"): place((2, 6), (1,), [[0], [2], [4], [1], [3], [5]]),
            },
        ),
        HEAD,
    ),
]

# Normalising and mixing -----------------------------------------------------------------------------------------------


def group_norm() -> nn.Module:
    return nn.GroupNorm(2, 6)


def instance_norm() -> nn.Module:
    return nn.InstanceNorm2d(6, affine=True)


def convolution_and(norm: Callable[[], nn.Module]) -> dict[str, Any]:
    return {"e": C2(3, 6, 3), "n": norm(), "h": L(6, 2)}


NORMALISE = [
    case(
        "batch_norm",
        lambda m, x: m.h(F.relu(m.n(m.e(x)))),
        lambda: e_h() | {"n": nn.BatchNorm1d(6)},
        data(3, 4),
        G(6, wb("e"), w("h"), norms=bn("n")),
        HEAD,
    ),
    *(
        case(
            norm.__name__,
            lambda m, x: m.h(F.relu(m.n(m.e(x))).mean((2, 3))),
            partial(convolution_and, norm),
            data(2, 3, 6, 6),
            G(6, wb("e"), w("h"), norms=wb("n")),
            HEAD,
        )
        for norm in (group_norm, instance_norm)
    ),
    case(
        "layer_norm_over_tokens_too",
        lambda m, x: m.h(m.n(m.e(x))),
        lambda: e_h() | {"n": nn.LayerNorm([5, 6])},
        data(2, 5, 4),
        G(6, wb("e"), w("h"), norms=wb("n"), at={("norms", "n.weight"): place((5, 6), (1,), rows(6))}),
        HEAD,
    ),
    case("length_one", lambda m, x: m.h(F.normalize(m.e(x), dim=-1)), e_h, data(3, 4), *E_H),
    case("softmax_over_units", lambda m, x: m.h(m.e(x).softmax(-1)), e_h, data(3, 4), *E_H),
    case(
        "resampling",
        lambda m, x: m.h(F.avg_pool1d(F.interpolate(m.e(x), scale_factor=2), 4).amax(-1)),
        lambda: {"e": C1(3, 6, 3), "h": L(6, 2)},
        data(2, 3, 8),
        *E_H,
    ),
]

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

WORKING = [*ELEMENTWISE, *REARRANGE, *NORMALISE, *PRODUCTS, *MODELS]

# Known faults: what we would expect, and what happens -----------------------------------------------------------------


def heads_normalised(m: Any, x: Tensor) -> Tensor:
    y = m.e(x)
    q, k, v = (part(y).view(*x.shape[:2], 3, 4).transpose(1, 2) for part in (m.q, m.k, m.v))
    q, k = (
        torch.cat([norm(head) for norm, head in zip(norms, part.split(1, 1), strict=True)], 1)
        for norms, part in ((m.qn, q), (m.kn, k))
    )
    return m.h(y + m.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))


def latent_queries(m: Any, x: Tensor) -> Tensor:
    y = m.e(x)
    q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in (m.q(m.latents), m.k(y), m.v(y)))
    return m.h(m.o(F.scaled_dot_product_attention(q.expand(len(x), -1, -1, -1), k, v).transpose(1, 2).flatten(2)))


def bias_per_head(m: Any, x: Tensor) -> Tensor:
    distance = (torch.arange(6)[:, None] - torch.arange(6)).abs()
    return attend(m, x, mask=m.bias(distance).permute(2, 0, 1))


def standardised(m: Any, x: Tensor) -> Tensor:
    std, mean = torch.std_mean(m.a.weight, dim=1, keepdim=True)
    return m.h(F.linear(F.relu(m.e(x)), (m.a.weight - mean) / std * m.gain, m.a.bias))


def two_axes(m: Any, x: Tensor) -> Tensor:
    return m.h(m.t(m.e(x).transpose(1, 2)).flatten(1))


def mask_token(m: Any, x: Tensor, masked: Tensor) -> Tensor:
    return m.h(m.e(x) * (1 - masked) + m.token * masked)


CHUNKS = place((12, 4), (0,), [[n, n + 6] for n in range(6)])
GATED = G(6, wb("e"), w("h"), kind="gated", at={("incoming", "e.weight"): CHUNKS})
ORIGINAL = "a.parametrizations.weight.original"
ONCE_WRONG = [
    (
        "TypeError in mixing._dims: aten.min.other compares two tensors",
        case("min_of_two", lambda m, x: m.h(torch.min(m.e(x), m.a(x))), e_a_h, data(3, 4), *ELEMENTWISE[4].groups),
    ),
    (
        "a bias with a batch dimension ties all units into one: rules._place ties each dimension by itself",
        case(
            "ensemble_by_matmul",
            lambda m, x: F.relu(x @ m.a + m.b) @ m.c,
            lambda: {"a": weight(3, 4, 8), "b": weight(3, 1, 8), "c": weight(3, 8, 1)},
            data(5, 4),
            G(24, {"a", "b"}, {"c"}),
            G(3, {"c"}, kind="output"),
        ),
    ),
    (
        "members of an ensemble are tied: rules._weight_fields drops the batch letter from both sides",
        case(
            "ensemble_by_bmm",
            lambda m, x: F.relu(x.expand(3, -1, -1).bmm(m.a)).bmm(m.c),
            lambda: {"a": weight(3, 4, 8), "c": weight(3, 8, 2)},
            data(5, 4),
            G(24, {"a"}, {"c"}),
            G(6, {"c"}, kind="output"),
        ),
    ),
    (
        "two unit axes flattened into one dimension are tied into a single unit",
        case(
            "units_along_two_axes",
            two_axes,
            lambda: {"e": L(4, 6), "t": L(3, 5), "h": L(30, 2)},
            data(2, 3, 4),
            G(6, wb("e"), w("h")),
            G(5, wb("t"), w("h")),
            HEAD,
        ),
    ),
    (
        "keys whose labels were merged away by stack count as queries",
        case(
            "attention_with_pairs_turned",
            lambda m, x: attend(m, x, pair_turn),
            attention,
            data(2, 6, 5),
            STREAM,
            G(6, wb("q"), wb("k"), kind="score", at={("outgoing", "k.weight"): place((12, 12), (0,), NEXT)}),
            VALUES,
            HEAD,
            swap=False,
        ),
    ),
    (
        "heads that are joined along their own dimension are tied to each other: rearrange._shared",
        case(
            "heads_normalised_one_by_one",
            heads_normalised,
            lambda: attention() | {n: nn.ModuleList(nn.LayerNorm(4) for _ in range(3)) for n in ("qn", "kn")},
            data(2, 6, 5),
            STREAM,
            *(G(4, wb("q"), wb("k"), norms=wb(f"qn.{n}", f"kn.{n}"), kind="score") for n in range(3)),
            VALUES,
            HEAD,
        ),
    ),
    (
        "keys and values with a learned token: its label is not known as a key",
        case(
            "learned_key_and_value",
            lambda m, x: m.h(m.a(m.e(x), m.e(x), m.e(x))[0]),
            lambda: {"e": L(5, 12), "a": nn.MultiheadAttention(12, 3, add_bias_kv=True), "h": L(12, 2)},
            data(2, 6, 5),
            G(12, wb("e"), {"a.in_proj_weight"}),
            G(
                12,
                {f"a.in_proj_{n}" for n in ("weight", "bias")},
                {"a.in_proj_weight", "a.in_proj_bias", "a.bias_k"},
                kind="score",
            ),
            G(12, {"a.in_proj_weight", "a.in_proj_bias", "a.bias_v"}, {"a.out_proj.weight"}),
            G(12, wb("a.out_proj"), w("h")),
            HEAD,
        ),
    ),
    (
        "a bias with one value a head ties all values of the head",
        case(
            "bias_of_scores_per_head",
            bias_per_head,
            lambda: attention() | {"bias": nn.Embedding(6, 3)},
            data(2, 6, 5),
            STREAM,
            SCORE,
            VALUES,
            G(3, {"bias.weight"}),  # passes into the values without a weight
            HEAD,
            swap=False,
        ),
    ),
    (
        "a factor with one value a head ties all values of the head",
        case(
            "factor_per_head",
            lambda m, x: m.h(m.o((m.v(x).view(-1, 3, 4) * m.g).flatten(1))),
            lambda: {"v": L(5, 12), "g": weight(3, 1), "o": L(12, 6), "h": L(6, 2)},
            data(3, 5),
            VALUES,
            G(6, wb("o"), w("h")),
            HEAD,
            uncovered={"g"},
        ),
    ),
    (
        "a learned activation in front of a layer is taken for a weight: queries have no role and no group",
        case(
            "learned_queries",
            latent_queries,
            lambda: attention() | {"latents": weight(1, 2, 12)},
            data(2, 6, 5),
            G(12, wb("e"), w("k", "v")),
            G(12, {"latents"}, w("q")),
            SCORE,
            VALUES,
            G(12, wb("o"), w("h")),
            HEAD,
        ),
    ),
    (
        "a constant in front of a layer is taken for a parameter",
        case(
            "layer_on_a_constant",
            lambda m, x: m.h(F.relu(m.e(x) + m.t(m.table))),
            lambda: e_h() | {"t": L(8, 6), "table": data(8)},
            data(3, 4),
            G(6, wb("e", "t"), w("h"), kind="stream"),
            HEAD,
        ),
    ),
    (
        "parameters that are composed into a weight get no slot: only the first one's labels are used",
        case(
            "low_rank_update",
            lambda m, x: m.h(F.linear(F.relu(m.e(x)), m.a.weight + m.up @ m.down, m.a.bias)),
            lambda: {"e": L(4, 6), "a": L(6, 5), "down": weight(2, 6), "up": weight(5, 2), "h": L(5, 2)},
            data(3, 4),
            G(6, wb("e"), w("a") | {"down"}),
            G(2, {"down"}, {"up"}),
            G(5, wb("a") | {"up"}, w("h")),
            HEAD,
        ),
    ),
    (
        "as above: sigma of a noisy layer",
        case(
            "noisy_layer",
            lambda m, x: m.h(F.relu(F.linear(x, m.mu + m.sigma * m.noise, m.b))),
            lambda: {"mu": weight(6, 4), "sigma": weight(6, 4), "noise": data(6, 4), "b": weight(6), "h": L(6, 2)},
            data(3, 4),
            G(6, {"mu", "sigma", "b"}, w("h")),
            HEAD,
            swap=False,
        ),
    ),
    (
        "as above: the gain of a standardised weight",
        case(
            "standardised_weight",
            standardised,
            lambda: {"e": L(4, 6), "a": L(6, 5), "gain": weight(5, 1), "h": L(5, 2)},
            data(3, 4),
            G(6, wb("e"), w("a")),
            G(5, wb("a") | {"gain"}, w("h")),
            HEAD,
        ),
    ),
    (
        "the gain of a grouped convolution is a group of its own",
        case(
            "weight_norm_of_grouped_convolution",
            lambda m, x: m.h(m.a(m.e(x)).mean(-1)),
            lambda: {"e": C1(3, 4, 1), "a": weight_norm(C1(4, 6, 3, groups=2)), "h": L(6, 2)},
            data(2, 3, 6),
            G(4, wb("e"), {f"{ORIGINAL}1"}),
            G(6, {"a.bias", f"{ORIGINAL}0", f"{ORIGINAL}1"}, w("h")),
            HEAD,
        ),
    ),
    (
        "aten.vdot is not understood, though it only makes a scalar of parameters",
        case(
            "spectral_norm",
            lambda m, x: m.h(F.relu(m.a(F.relu(m.e(x))))),
            lambda: {"e": L(4, 6), "a": spectral_norm(L(6, 5)), "h": L(5, 2)},
            data(3, 4),
            G(6, wb("e"), {ORIGINAL}),
            G(5, {"a.bias", ORIGINAL}, w("h")),
            HEAD,
            swap=False,
        ),
    ),
    (
        "stack ties what is read apart afterwards",
        case(
            "stacked_then_flattened",
            lambda m, x: m.h(torch.stack([m.e(x), m.a(x)], 1).flatten(1)),
            lambda: {"e": L(4, 3), "a": L(4, 3), "h": L(6, 2)},
            data(5, 4),
            G(3, wb("e"), w("h")),
            G(3, wb("a"), w("h")),
            HEAD,
        ),
    ),
    (
        "the largest of a pair is one unit; it is taken for a model output",
        case(
            "maxout",
            lambda m, x: m.h(m.e(x).view(-1, 6, 2).amax(-1)),
            lambda: {"e": L(4, 12), "h": L(6, 2)},
            data(3, 4),
            G(6, wb("e"), w("h"), at={("incoming", "e.weight"): place((12, 4), (0,), flattened(6, 2))}),
            HEAD,
        ),
    ),
    (
        "as above: what an upsampling made of one unit, averaged",
        case(
            "pixel_shuffle_then_mean",
            lambda m, x: m.h(F.pixel_shuffle(m.e(x), 2).mean((2, 3))),
            lambda: {"e": C2(3, 12, 3), "h": L(3, 2)},
            data(2, 3, 5, 5),
            G(3, wb("e"), w("h"), at={("incoming", "e.weight"): place((12, 3, 3, 3), (0,), flattened(3, 4))}),
            HEAD,
        ),
    ),
    (
        "a single channel that is flattened has no reader",
        case(
            "one_channel_flattened",
            lambda m, x: m.h(m.e(x).flatten(1)),
            lambda: {"e": C2(3, 1, 1), "h": L(16, 2)},
            data(2, 3, 4, 4),
            G(1, wb("e"), w("h"), at={("outgoing", "h.weight"): place((2, 16), (1,), flattened(1, 16))}),
            HEAD,
        ),
    ),
    (
        "parameters that meet the raw input element by element make no units",
        case(
            "numbers_to_tokens",
            lambda m, x: m.h(F.relu(x[..., None] * m.a + m.b)),
            lambda: {"a": weight(4, 6), "b": weight(4, 6), "h": L(6, 2)},
            data(3, 4),
            G(6, {"a", "b"}, w("h")),
            HEAD,
        ),
    ),
    (
        "as above: a learned token behind a mask",
        case(
            "token_behind_a_mask",
            mask_token,
            lambda: e_h() | {"token": weight(6)},
            (data(2, 5, 4), (data(2, 5, 1) > 0).float()),
            G(6, wb("e") | {"token"}, w("h")),
            HEAD,
        ),
    ),
    (
        "fused gates are not called gated: assemble._kind counts tensors, not rows",
        case(
            "fused_gate",
            lambda m, x: m.h(F.silu(m.e(x)[:, :6]) * m.e(x)[:, 6:]),
            lambda: {"e": L(4, 12), "h": L(6, 2)},
            data(3, 4),
            GATED,
            HEAD,
        ),
    ),
    (
        "aten.glu has no handler",
        case("glu", lambda m, x: m.h(F.glu(m.e(x))), lambda: {"e": L(4, 12), "h": L(6, 2)}, data(3, 4), GATED, HEAD),
    ),
    (
        "aten.broadcast_tensors has no handler (torch.distributions.Normal)",
        case("broadcast", lambda m, x: m.h(torch.broadcast_tensors(m.e(x), x[:, :1])[0]), e_h, data(3, 4), *E_H),
    ),
    (
        "indexing by a constant is not understood",
        case("constant_index", lambda m, x: m.h(m.e(x)[:, [5, 4, 3, 2, 1, 0]]), e_h, data(3, 4), *E_H),
    ),
]
LIMITS = {"numbers_to_tokens", "token_behind_a_mask"}  # listed as uncovered with the reason, but without units
BROKEN = [
    pytest.param(c, id=c.name, marks=pytest.mark.xfail(strict=True, reason=why) if c.name in LIMITS else ())
    for why, c in ONCE_WRONG
]
CASES = [*(pytest.param(c, id=c.name) for c in WORKING), *BROKEN]


@pytest.mark.parametrize("case", CASES)
def test_operations(case: Case) -> None:
    model = case.model()
    graph = trace(model, case.example)
    assert_groups(graph, case.groups)
    assert set(graph.uncovered) == set(case.uncovered)
    graph.verify(model, case.example)
    if case.swap:
        assert_units_can_change_places(graph, model, case.example)


def assert_units_can_change_places(graph: UnitGraph, model: nn.Module, example: Any) -> None:
    """The last unit and its neighbour change places in every slot: the same network, if nothing was left out."""
    args, kwargs = as_call(example)
    noise = torch.Generator().manual_seed(1)
    drawn = {
        name: torch.rand(p.shape, generator=noise) + 0.5
        for name, p in model.state_dict().items()
        if p.dtype.is_floating_point
    }
    for group in graph.groups:
        tensors, done = dict(drawn), set()
        for slot in (*group.incoming, *group.norms, *group.outgoing) if group.size > 1 and not group.leaves else ():
            region = (slot.tensor, slot.where.view, slot.where.dims, slot.where.index.numpy().tobytes())
            if region not in done:  # a tensor that writes and reads has one slot on each side
                order = [*range(group.size - 2), group.size - 1, group.size - 2]
                part = slot.where.read(tensors[slot.tensor])
                tensors[slot.tensor] = slot.where.write(tensors[slot.tensor], part[order])
            done.add(region)
        with torch.no_grad(), at_rest(model):
            before, after = (functional_call(model, t, args, kwargs) for t in (drawn, tensors))
        torch.testing.assert_close(
            after, before, rtol=1e-3, atol=1e-4, msg=f"{group.name}: two units cannot change places"
        )


# Roles ----------------------------------------------------------------------------------------------------------------


def roles(model: nn.Module, example: Any) -> dict[str, str]:
    return {weight.name: weight.role for weight in trace(model, example).weights}


def test_what_reads_a_single_unit_is_hidden() -> None:
    assert roles(nn.Sequential(L(4, 1), nn.Tanh(), L(1, 3), nn.Tanh(), L(3, 2)), data(3, 4))["2.weight"] == "hidden"


def test_what_mixes_tokens_of_units_is_hidden() -> None:
    net = Net(lambda m, x: m.h(m.t(m.e(x).transpose(1, 2)).mean(-1)), {"e": L(4, 6), "t": L(3, 5), "h": L(6, 2)})
    assert roles(net, data(2, 3, 4))["t.weight"] == "hidden"


@pytest.mark.parametrize("name", ["noisy_layer", "standardised_weight", "low_rank_update"])
def test_computed_weights_are_listed(name: str) -> None:
    (found,) = [c for _, c in ONCE_WRONG if c.name == name]
    listed = {weight.tensor for weight in trace(found.model(), found.example).weights}
    assert listed & {"mu", "a.weight"}


def test_what_is_pooled_in_front_of_a_layer_is_no_head() -> None:
    net = Net(lambda m, x: m.h(m.e(x).view(-1, 3, 4).mean(1)), {"e": L(4, 12), "h": L(4, 2)})
    assert roles(net, data(3, 4))["e.weight"] == "input"


# What is not understood -----------------------------------------------------------------------------------------------

NOT_UNDERSTOOD = {
    "gru": lambda: Net(lambda m, x: m.h(m.g(m.e(x))[0]), {"e": L(4, 6), "g": nn.GRU(6, 5), "h": L(5, 2)}),
    "lstm_cell": lambda: Net(lambda m, x: m.h(m.g(m.e(x[0]))[0]), {"e": L(4, 6), "g": nn.LSTMCell(6, 5), "h": L(5, 2)}),
    "topk": lambda: Net(lambda m, x: m.h(m.e(x).topk(3, -1).values), {"e": L(4, 6), "h": L(3, 2)}),
    "sort": lambda: Net(lambda m, x: m.h(m.e(x).sort(-1).values), {"e": L(4, 6), "h": L(6, 2)}),
}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_named(name: str) -> None:
    model, example = NOT_UNDERSTOOD[name](), data(2, 3, 4)
    with pytest.raises(GraphError):
        trace(model, example)
    assert name in trace(model, example, strict=False).not_understood[0]


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_reason_of_what_enters_an_unknown_operation(name: str) -> None:
    graph = trace(NOT_UNDERSTOOD[name](), data(2, 3, 4), strict=False)
    assert name in graph.uncovered["e.weight"]


def test_reason_of_a_parameter_that_leaves_the_model() -> None:
    net = Net(lambda m, x: (m.h(m.e(x)), m.log_std.exp()), e_h() | {"log_std": weight(1, 2)})
    assert "not used" not in trace(net, data(3, 4)).uncovered["log_std"]


# Verification ---------------------------------------------------------------------------------------------------------


def test_units_without_effect_are_not_provable() -> None:
    net, example = Net(attend, attention()), data(2, 1, 5)
    graph = trace(net, example)
    assert "q" in graph.verify(net, example).not_provable


def test_noise_in_forward_is_the_same_in_every_trial() -> None:
    net = Net(lambda m, x: m.h(F.relu(m.a(m.e(x) + torch.randn(3, 6)))), {"e": L(4, 6), "a": L(6, 5), "h": L(5, 2)})
    net = Net(lambda m, x: (m.inner(x), x + torch.randn(3, 4)), {"inner": net})
    trace(net, data(3, 4)).verify(net, data(3, 4))
