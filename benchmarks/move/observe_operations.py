"""Small models with one operation each: what a trace makes of it, which the zoo does not show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from observe_graphs import note_graph, scaling
from recording import Seen
from torch import Tensor, nn

import rekindle as rk

VECTORS, TOKENS, IMAGES = (3, 4), (2, 5, 4), (2, 4, 8, 8)


class Net(nn.Module):
    """Twelve units, an operation on them, and a head; `b` are twelve other units, `m` a layer between units."""

    def __init__(self, operation: Callable[..., Tensor], width: int, images: bool) -> None:
        super().__init__()
        layer: Any = (lambda i, o: nn.Conv2d(i, o, 3, padding=1)) if images else nn.Linear
        self.e, self.b, self.m, self.h = layer(4, 12), layer(4, 12), layer(12, 12), nn.Linear(width, 2)
        self.w, self.s = nn.Parameter(torch.randn(12, 12)), nn.Parameter(torch.randn(12))
        self.operation, self.images = operation, images

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs to two outputs."""
        y = self.operation(self, self.e(x), x)
        return self.h(y.mean((2, 3)) if self.images and y.ndim == 4 else y)


ON_VECTORS: dict[str, Callable[..., Tensor]] = {
    **{name: (lambda m, y, x, name=name: getattr(F, name)(y)) for name in ("gelu", "silu", "elu", "softplus", "mish")},
    **{name: (lambda m, y, x, name=name: getattr(y, name)()) for name in ("abs", "exp", "square", "sign", "tanh")},
    **{name: (lambda m, y, x, name=name: getattr(F, name)(y)) for name in ("leaky_relu", "relu6", "hardtanh", "celu")},
    "clamp": lambda m, y, x: y.clamp(-1, 1),
    "clamp at zero": lambda m, y, x: y.clamp(min=0),
    "constants": lambda m, y, x: 1 - 2 * y / 3,
    "power": lambda m, y, x: y.abs() ** 0.5 + y**3,
    "square root": lambda m, y, x: y.abs().sqrt(),
    "maximum": lambda m, y, x: torch.maximum(y, m.b(x)),
    "where": lambda m, y, x: torch.where(y > 0, y, m.b(x)),
    "product": lambda m, y, x: y * m.b(x).sigmoid(),
    "division": lambda m, y, x: y / (1 + m.b(x).abs()),
    "difference": lambda m, y, x: y - m.b(x),
    "in place": lambda m, y, x: y.relu_().mul_(2).add_(m.m(y)),
    "residual": lambda m, y, x: y + m.s * m.m(F.relu(y)),
    "scale and shift": lambda m, y, x: y * m.s + m.s,
    "length one": lambda m, y, x: F.normalize(y, dim=-1),
    "layer norm": lambda m, y, x: F.layer_norm(y, (12,), m.s),
    "softmax": lambda m, y, x: y.softmax(-1),
    "log softmax": lambda m, y, x: y.log_softmax(-1),
    "centered": lambda m, y, x: y - y.mean(-1, keepdim=True),
    "deviation": lambda m, y, x: y / (y.std(-1, keepdim=True) + 1e-5),
    "flip": lambda m, y, x: y.flip(-1),
    "roll": lambda m, y, x: y.roll(3, -1),
    "slices": lambda m, y, x: torch.cat([y[..., 6:], y[..., :6]], -1),
    "chunks": lambda m, y, x: torch.cat([part.relu() for part in y.chunk(3, -1)], -1),
    "stack": lambda m, y, x: torch.stack([y, m.b(x)], -1).amax(-1),
    "gather": lambda m, y, x: y.index_select(-1, torch.tensor([3, 1, 2, 0, 5, 4, 7, 6, 9, 8, 11, 10])),
    "index": lambda m, y, x: y[..., torch.arange(11, -1, -1)],
    "view": lambda m, y, x: y.view(-1, 3, 4).transpose(1, 2).flatten(1),
    "unfold": lambda m, y, x: y.view(-1, 3, 4).permute(0, 2, 1).reshape(-1, 12),
    "repeat": lambda m, y, x: y.view(-1, 12, 1).expand(-1, 12, 2).mean(-1),
    "pad": lambda m, y, x: F.pad(y[..., :8], (2, 2)),
    "matmul": lambda m, y, x: y @ m.w,
    "matmul turned": lambda m, y, x: F.linear(y, m.w.t(), m.s),
    "einsum": lambda m, y, x: torch.einsum("bi,ji->bj", y, m.w),
    "addmm": lambda m, y, x: torch.addmm(m.s, y, m.w),
    "weight standardized": lambda m, y, x: F.linear(y, (m.w - m.w.mean(1, keepdim=True)) / m.w.std(1, keepdim=True)),
    "low rank": lambda m, y, x: F.linear(y, m.w[:, :2] @ m.w[:2]),
    "cumulative": lambda m, y, x: y.cumsum(-1),
    "sorted": lambda m, y, x: y.sort(-1).values,
    "no gradient": lambda m, y, x: y.detach() + m.m(y),
    "dropout": lambda m, y, x: F.dropout(y, 0.5, m.training),
    "glu": lambda m, y, x: torch.cat([F.glu(y, -1)] * 2, -1),
    "both signs": lambda m, y, x: F.relu(y) - F.relu(-y),
    "outer": lambda m, y, x: (y[:, :, None] * m.b(x)[:, None, :]).sum(-1),
    "bilinear": lambda m, y, x: F.bilinear(y, m.b(x), m.w.expand(12, 12, 12)),
}
ON_IMAGES: dict[str, Callable[..., Tensor]] = {
    "max pool": lambda m, y, x: F.max_pool2d(y, 2),
    "average pool": lambda m, y, x: F.adaptive_avg_pool2d(y, 2),
    "interpolated": lambda m, y, x: F.interpolate(y, scale_factor=2, mode="bilinear"),
    "nearest": lambda m, y, x: F.interpolate(y, scale_factor=2),
    "strided": lambda m, y, x: y[:, :, ::2, 1:],
    "channel shuffle": lambda m, y, x: F.channel_shuffle(y, 3),
    "pixel shuffle": lambda m, y, x: F.pixel_shuffle(y, 2).repeat(1, 4, 1, 1),
    "pixel unshuffle": lambda m, y, x: F.pixel_unshuffle(y[:, :3], 2),
    "instance norm": lambda m, y, x: F.instance_norm(y),
    "group norm": lambda m, y, x: F.group_norm(y, 3, m.s),
    "padded": lambda m, y, x: F.pad(y, (1, 1, 1, 1), mode="reflect"),
    "concatenated": lambda m, y, x: torch.cat([y[:, :6], m.b(x)[:, 6:]], 1),
    "permuted": lambda m, y, x: y.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "gated": lambda m, y, x: y * y.mean((2, 3), keepdim=True).sigmoid(),
    "over rows": lambda m, y, x: y.mean(3).amax(2),
    "depthwise": lambda m, y, x: F.conv2d(y, m.w[:, :9].reshape(12, 1, 3, 3), groups=12),
    "transposed": lambda m, y, x: F.conv_transpose2d(y, m.w.reshape(12, 12, 1, 1)),
}
ON_TOKENS: dict[str, Callable[..., Tensor]] = {
    "attention": lambda m, y, x: y + F.scaled_dot_product_attention(m.m(y), m.b(x), y),
    "by hand": lambda m, y, x: (m.m(y) @ m.b(x).mT).softmax(-1) @ y,
    "heads": lambda m, y, x: _heads(m.m(y), m.b(x), y),
    "rotated": lambda m, y, x: _heads(_turned(m.m(y)), _turned(m.b(x)), y),
    "masked": lambda m, y, x: (m.m(y) @ m.b(x).mT).masked_fill(torch.ones(5, 5).triu(1).bool(), -1e9).softmax(-1) @ y,
    "mixed tokens": lambda m, y, x: y + (y.mT @ m.w[:5, :5]).mT,
    "first token": lambda m, y, x: y[:, 0],
    "mean of tokens": lambda m, y, x: y.mean(1),
    "split": lambda m, y, x: torch.cat(y.split([4, 8], -1)[::-1], -1),
    "unbound": lambda m, y, x: sum(y.unbind(1)),
}


def observe(seen: Seen, room: Path) -> None:
    """Trace a model for each operation."""
    for kind, operations, shape in (
        ("vectors", ON_VECTORS, VECTORS),
        ("images", ON_IMAGES, IMAGES),
        ("tokens", ON_TOKENS, TOKENS),
    ):
        for name, operation in operations.items():
            torch.manual_seed(0)
            net, example = Net(operation, 12, kind == "images"), torch.randn(shape)
            _trace(seen, f"{kind}/{name}", net, example)


def _trace(seen: Seen, key: str, net: nn.Module, example: Tensor) -> None:
    seen.attempt(f"{key}/strict", lambda: rk.trace(net, example))
    graph = seen.attempt(key, lambda: rk.trace(net, example, strict=False))
    if graph is not None:
        note_graph(seen, key, graph)
        seen.note(f"{key}/scaling", scaling(graph))
        seen.attempt(f"{key}/verify", lambda: seen.note(f"{key}/verified", graph.verify(net, example)))
        record = seen.attempt(f"{key}/rescale", lambda: rk.apply_("rescale", net, graph=graph))
        seen.note(f"{key}/rescaled", str(record and record.to_dict()))


def _heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (each.view(2, 5, 3, 4).transpose(1, 2) for each in (q, k, v))
    return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)


def _turned(x: Tensor) -> Tensor:
    angle = torch.arange(5)[:, None] * torch.linspace(0.5, 1, 6).repeat(2)
    return x * angle.cos() + torch.cat([-x[..., 6:], x[..., :6]], -1) * angle.sin()
