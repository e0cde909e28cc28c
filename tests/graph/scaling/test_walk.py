"""What is not positively homogeneous on the way of units, written by hand for the zoo and for single operations."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rekindle.graph import trace
from rekindle.testing.aged import graph_of
from rekindle.testing.zoo import NOT_UNDERSTOOD, zoo

SDPA = "aten.scaled_dot_product_attention"

# Groups with something curved on their way; every other group of every zoo model has nothing.
CURVED = {
    "rms_norm_mlp": {f"up.{n}": ("(model): aten.silu",) for n in (0, 1)},
    "squeeze_excite": {"conv1": ("(model): aten.sigmoid",)},  # the gate's units are tied to what they multiply
    "mixer": {
        # The transposed stream: hidden units of the token mixer stand beside the channels of the stream.
        "patches": ("blocks.0: aten.gelu", "blocks.1: aten.gelu"),
        "blocks.0.token_fc2": ("blocks.0: aten.gelu", "blocks.1: aten.gelu"),
        **{f"blocks.{n}.{name}": (f"blocks.{n}: aten.gelu",) for n in (0, 1) for name in ("token_fc1", "channel_fc1")},
    },
    "vit_separate": {
        **{f"blocks.{n}.attention.q": (f"blocks.{n}.attention: {SDPA}",) for n in (0, 1)},
        **{f"blocks.{n}.mlp.0": (f"blocks.{n}.mlp.1: aten.gelu",) for n in (0, 1)},
    },
    "vit_fused": {
        **{
            f"blocks.{n}.attention.qkv[qk]": (
                f"blocks.{n}.attention: aten.matmul",
                f"blocks.{n}.attention: aten.softmax",
            )
            for n in (0, 1)
        },
        **{f"blocks.{n}.mlp.0": (f"blocks.{n}.mlp.1: aten.gelu",) for n in (0, 1)},
    },
    "vit_mha": {
        **{f"blocks.{n}.attention.mha.in_proj_weight[qk]": (f"blocks.{n}.attention.mha: {SDPA}",) for n in (0, 1)},
        **{f"blocks.{n}.mlp.0": (f"blocks.{n}.mlp.1: aten.gelu",) for n in (0, 1)},
    },
    "transformer_encoder": {
        f"encoder.layers.{n}.self_attn.in_proj_weight[qk]": (f"encoder.layers.{n}.self_attn: {SDPA}",) for n in (0, 1)
    },
    "gpt": {
        **{f"h.{n}.attn.c_attn[qk]": (f"h.{n}.attn: {SDPA}",) for n in (0, 1)},
        **{f"h.{n}.mlp.c_fc": (f"h.{n}.mlp: aten.gelu",) for n in (0, 1)},
    },
    "gpt2": {
        **{f"transformer.h.{n}.attn.c_attn[qk]": (f"transformer.h.{n}.attn: {SDPA}",) for n in (0, 1)},
        **{  # a gelu written by hand
            f"transformer.h.{n}.mlp.c_fc": tuple(
                f"transformer.h.{n}.mlp.act: aten.{op}" for op in ("pow", "tanh", "add")
            )
            for n in (0, 1)
        },
    },
    "llama": {
        **{f"model.layers.{n}.self_attn.q_proj": (f"model.layers.{n}.self_attn: {SDPA}",) for n in (0, 1)},
        **{f"model.layers.{n}.mlp.gate_proj": (f"model.layers.{n}.mlp.act_fn: aten.silu",) for n in (0, 1)},
    },
    "lstm_classifier": {f"lstm.weight_ih_l{n}": ("lstm: aten.lstm",) for n in (0, 1)},
    "gru_cells": {"cell.weight_ih": ("cell: aten.gru_cell",)},
}
MEMBERS = [pytest.param(member, id=member.name) for member in zoo()]


@pytest.mark.parametrize("member", MEMBERS)
def test_the_zoo(member):
    found = {name: places for name, places in graph_of(member).non_homogeneous.items() if places}
    assert found == CURVED.get(member.name, {})


@pytest.mark.parametrize("member", MEMBERS)
def test_homogeneous_is_without_curves_and_without_norms(member):
    graph = graph_of(member)
    assert member.homogeneous == (
        not any(graph.non_homogeneous.values()) and not any(group.norms for group in graph.groups)
    )


class Between(nn.Module):
    """A function between two linear layers."""

    def __init__(self, function, **parameters):
        super().__init__()
        self.first, self.last, self.function = nn.Linear(5, 6), nn.Linear(6, 3), function
        for name, value in parameters.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.last(self.function(self, self.first(x)))


STRAIGHT = {
    "relu": lambda m, h: h.relu(),
    "leaky_relu": lambda m, h: F.leaky_relu(h, 0.1),
    "prelu": lambda m, h: F.prelu(h, m.slope),
    "abs": lambda m, h: h.abs(),
    "dropout": lambda m, h: F.dropout(h, 0.5, m.training),
    "by a number": lambda m, h: -h * 3 / 2,
    "by a constant": lambda m, h: h * torch.arange(1.0, 7.0),
    "plus a parameter": lambda m, h: h + m.shift,
    "plus zero": lambda m, h: h + 0.0,
    "maximum": lambda m, h: torch.maximum(h, 0.1 * h),
    "where": lambda m, h: torch.where(h > 0, h, 0.1 * h),
    "clamp at zero": lambda m, h: h.clamp(min=0),
    "residual": lambda m, h: h + h.relu(),
    "mean": lambda m, h: h - h.mean(-1, keepdim=True),
    "pool": lambda m, h: F.max_pool1d(h[:, None], 3, 1, 1)[:, 0],
    "cat": lambda m, h: torch.cat([h[:, 3:], h[:, :3]], -1),
    "layer norm": lambda m, h: F.layer_norm(h, (6,)),
    "norm by hand": lambda m, h: h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6),
    "normalize": lambda m, h: F.normalize(h, dim=-1),
}
BENT = {
    "gelu": (lambda m, h: F.gelu(h), "gelu"),
    "tanh": (lambda m, h: h.tanh(), "tanh"),
    "exp": (lambda m, h: h.exp(), "exp"),
    "softmax": (lambda m, h: h.softmax(-1), "softmax"),
    "relu6": (lambda m, h: F.relu6(h), "relu6"),
    "clamp": (lambda m, h: h.clamp(-1, 1), "clamp"),
    "plus one": (lambda m, h: h + 1, "add"),
    "plus positions": (lambda m, h: h + torch.arange(6.0), "add"),
    "compared": (lambda m, h: torch.where(h > 1, h, 0.0), "gt"),
    "gate": (lambda m, h: h * h.relu(), "mul"),
    "square": (lambda m, h: h.relu().square(), "square"),
    "divided": (lambda m, h: 1 / (h.abs() + 1), "add"),
}


@pytest.mark.parametrize("function", STRAIGHT.values(), ids=STRAIGHT)
def test_straight(function):
    model = Between(function, slope=nn.Parameter(torch.full((6,), 0.2)), shift=nn.Parameter(torch.ones(6)))
    assert not any(trace(model, torch.randn(4, 5)).non_homogeneous.values())


@pytest.mark.parametrize(("function", "op"), BENT.values(), ids=BENT)
def test_bent(function, op):
    graph = trace(Between(function), torch.randn(4, 5))
    assert f"(model): aten.{op}" in graph.non_homogeneous[graph.groups[0].name]
    assert not graph.non_homogeneous[graph.groups[-1].name]


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_gets_what_it_got(name):
    member = NOT_UNDERSTOOD[name]
    graph = trace(member.build(), member.example(), strict=False)
    fixed = {tuple(equation) for equation in graph.scale_constraints.equations if len(equation) == 1}
    first = next(iter(graph.scale_constraints.blocks.values()))[0].variable
    assert (first,) in fixed
