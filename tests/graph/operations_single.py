"""Operations on one stream of units: element by element, rearranging, normalizing and mixing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.graph.expected_notation import G, bn, flattened, rows, w, wb
from tests.graph.operation_cases import C1, C2, E_H, HEAD, L, case, data, e_a_h, e_h, place, weight

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

# Normalizing and mixing -----------------------------------------------------------------------------------------------


def group_norm() -> nn.Module:
    return nn.GroupNorm(2, 6)


def instance_norm() -> nn.Module:
    return nn.InstanceNorm2d(6, affine=True)


def convolution_and(norm: Callable[[], nn.Module]) -> dict[str, Any]:
    return {"e": C2(3, 6, 3), "n": norm(), "h": L(6, 2)}


NORMALizE = [
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
