"""Weight clipping: every bound by hand, and what is left alone."""

import math

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.testing import NOT_UNDERSTOOD, ZOO
from rekindle.testing.aged import graph_of


def inflated(model):
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1e3).add_(7.0)
    return model


def largest(tensor):
    return tensor.detach().abs().max().item()


@pytest.mark.parametrize("traced", [True, False])
def test_layers_of_torch_have_the_bound_of_their_uniform_law(traced):
    model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    given = {"example": torch.zeros(2, 3, 6, 6)} if traced else {}
    keeper = rk.Keeper(model, methods="weight_clip:kappa=3", **given)
    before = [p.detach().clone() for p in inflated(model)[1].parameters()]
    keeper.step()
    for layer, fan_in in ((model[0], 75), (model[4], 16)):
        assert largest(layer.weight) == pytest.approx(3 / math.sqrt(fan_in))
        assert largest(layer.bias) == pytest.approx(3 / math.sqrt(fan_in))
    assert all(torch.equal(p, q) for p, q in zip(model[1].parameters(), before, strict=True))
    assert set(keeper.state("weight_clip").skipped) == {"1.weight", "1.bias"}


def test_values_inside_stay_bit_for_bit():
    model = nn.Linear(4, 3)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    rk.Keeper(model, methods="weight_clip:kappa=1").step()
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


def test_normal_laws_and_constant_biases():
    pytest.importorskip("transformers")
    model = ZOO["gpt2"].build()
    bounds = rk.Keeper(model, methods="weight_clip:kappa=1", graph=graph_of(ZOO["gpt2"])).state("weight_clip").bounds
    std = model.config.initializer_range
    assert bounds["transformer.wte.weight"] == pytest.approx(math.sqrt(3) * std)
    assert bounds["transformer.h.0.attn.c_attn.weight"] == pytest.approx(math.sqrt(3) * std)
    assert bounds["transformer.h.0.attn.c_attn.bias"] == pytest.approx(1 / math.sqrt(12))
    assert bounds["transformer.h.1.mlp.c_proj.bias"] == pytest.approx(1 / math.sqrt(20))


@pytest.mark.parametrize("traced", [True, False])
def test_fused_attention_of_torch(traced):
    model = ZOO["vit_mha"].build()
    given = {"graph": graph_of(ZOO["vit_mha"])} if traced else {}
    running = rk.Keeper(model, methods="weight_clip:kappa=2", **given).state("weight_clip")
    prefix = "blocks.0.attention.mha"
    assert running.bounds[f"{prefix}.in_proj_weight"] == pytest.approx(2 * math.sqrt(6 / 48))
    assert running.bounds[f"{prefix}.in_proj_bias"] == pytest.approx(2 / math.sqrt(12))
    assert running.bounds[f"{prefix}.out_proj.bias"] == pytest.approx(2 / math.sqrt(12))
    assert {"cls_token", "positions", "norm.weight", "norm.bias"} <= set(running.skipped)


def test_biases_of_keys_and_of_parts_that_were_not_understood():
    model = ZOO["vit_separate"].build()
    running = rk.Keeper(model, methods="weight_clip:kappa=1", graph=graph_of(ZOO["vit_separate"])).state("weight_clip")
    assert running.bounds["blocks.0.attention.k.bias"] == pytest.approx(1 / math.sqrt(12))
    member = NOT_UNDERSTOOD["unknown_op"]
    model = member.build()
    running = rk.Keeper(model, methods="weight_clip:kappa=1", example=member.example()).state("weight_clip")
    assert not running.skipped
    assert running.bounds["fc1.bias"] == pytest.approx(1 / math.sqrt(model.fc1.in_features))


def test_unknown_laws_take_the_fan_in():
    model = ZOO["mlp_functional"].build()
    keeper = rk.Keeper(model, methods="weight_clip:kappa=1", graph=graph_of(ZOO["mlp_functional"]))
    bounds = {"w1": 5, "b1": 5, "w2": 7, "b2": 7, "w3": 11}
    assert keeper.state("weight_clip").bounds == pytest.approx({n: 1 / math.sqrt(f) for n, f in bounds.items()})


def test_grouped_convolution_has_the_fan_in_of_a_group():
    model = nn.Conv2d(4, 6, 3, groups=2)
    assert rk.Keeper(model, methods="weight_clip:kappa=1").state("weight_clip").bounds["weight"] == pytest.approx(
        1 / math.sqrt(18)
    )


def test_weight_norm_is_left_alone():
    model = inflated(ZOO["weight_norm_mlp"].build())
    before = {n: t.clone() for n, t in model.state_dict().items()}
    keeper = rk.Keeper(model, methods="weight_clip", graph=graph_of(ZOO["weight_norm_mlp"]))
    keeper.step()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == ("parametrizations" in name), name


def test_skip():
    model = inflated(nn.Linear(4, 3))
    before = model.bias.detach().clone()
    rk.Keeper(model, methods="weight_clip:skip=bias").step()
    assert torch.equal(model.bias, before)
    assert largest(model.weight) == 1.0
