"""Operations that were once read wrongly, each with what happened."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from tests.graph.expected_notation import G, flattened, w, wb
from tests.graph.operation_cases import C1, C2, E_H, HEAD, L, case, data, e_a_h, e_h, place, weight
from tests.graph.operations_products import NEXT, SCORE, STREAM, VALUES, attend, attention, pair_turn
from tests.graph.operations_single import ELEMENTWISE


def heads_normalized(m: Any, x: Tensor) -> Tensor:
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


def standardized(m: Any, x: Tensor) -> Tensor:
    std, mean = torch.std_mean(m.a.weight, dim=1, keepdim=True)
    return m.h(F.linear(F.relu(m.e(x)), (m.a.weight - mean) / std * m.gain, m.a.bias))


def two_axes(m: Any, x: Tensor) -> Tensor:
    return m.h(m.t(m.e(x).transpose(1, 2)).flatten(1))


def mask_token(m: Any, x: Tensor, masked: Tensor) -> Tensor:
    return m.h(m.e(x) * (1 - masked) + m.token * masked)


def kernels_from_data(m: Any, x: Tensor) -> Tensor:
    """ConvBERT: a kernel of three tokens for each of two heads, computed for each token."""
    kernel = m.k(x).reshape(-1, 3, 1).softmax(1)
    windows = F.unfold(m.e(x).transpose(1, 2).unsqueeze(-1), (3, 1), padding=(1, 0))
    windows = windows.transpose(1, 2).reshape(len(x), -1, 6, 3).reshape(-1, 3, 3)
    return m.h((windows @ kernel).reshape(*x.shape[:2], 6))


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
        "members of an ensemble are tied: rules._weight_labels drops the batch letter from both sides",
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
            "heads_normalized_one_by_one",
            heads_normalized,
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
        "as above: the gain of a standardized weight",
        case(
            "standardized_weight",
            standardized,
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
            G(6, wb("e") | {"token"}, w("h"), kind="stream"),  # a token times a mask is a layer of one input
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
        "pooling over tokens with channels behind them: windows of one position were taken to mix channels (Funnel)",
        case(
            "tokens_pooled_with_channels_behind",
            lambda m, x: m.h(F.max_pool2d(F.avg_pool2d(m.e(x)[:, None], (2, 1)), (2, 1))[:, 0]),
            e_h,
            data(2, 4, 4),
            *E_H,
        ),
    ),
    (
        "aten.im2col has no handler (ConvBERT); kernels that leak into it have readers that are not known",
        case(
            "kernels_from_data",
            kernels_from_data,
            lambda: e_h() | {"k": L(4, 6)},
            data(2, 5, 4),
            *E_H,
            G(6, wb("k")),  # passes into the other units without a weight
            swap=False,
        ),
    ),
    (
        "indexing by a constant is not understood",
        case("constant_index", lambda m, x: m.h(m.e(x)[:, [5, 4, 3, 2, 1, 0]]), e_h, data(3, 4), *E_H),
    ),
]
