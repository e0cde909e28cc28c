"""Without an example: weights by layer type, the same matrices as traced ones."""

import pytest
import torch
from torch import nn

from rekindle.graph.scan import scan
from rekindle.testing.aged import graph_of
from rekindle.testing.zoo import ZOO, zoo


def test_scanned_matrices_are_the_traced_ones():
    for member in zoo():
        model = member.build()
        traced = {w.name: w for w in graph_of(member).weights}
        tensors = dict(model.named_parameters())
        both = [weight for weight in scan(model).weights if weight.name in traced]
        assert both or member.name == "mlp_functional", member.name
        for weight in both:
            a = weight.view.read(tensors[weight.tensor])
            b = traced[weight.name].view.read(tensors[weight.tensor])
            assert a.shape == b.shape and weight.gain == traced[weight.name].gain, (member.name, weight.name)


def test_every_kind_of_layer_is_seen():
    model = nn.ModuleDict(
        {
            "attention": nn.MultiheadAttention(6, 2),
            "separate": nn.MultiheadAttention(6, 2, kdim=4, vdim=5),
            "grouped": nn.Conv1d(4, 6, 3, groups=2),
            "transposed": nn.ConvTranspose2d(4, 6, 3, groups=2),
            "embedding": nn.Embedding(5, 3),
            "normed": nn.utils.weight_norm(nn.Linear(3, 2)),
        }
    )
    found = {w.name: (w.role, w.sizes) for w in scan(model).weights}
    assert found["attention.in_proj_weight[k]"] == ("k", (1, 6, 6))
    assert found["attention.out_proj.weight"] == ("o", (1, 6, 6))
    assert found["separate.v_proj_weight"] == ("v", (1, 6, 5))
    assert found["grouped.weight"] == ("hidden", (6, 3, 2))
    assert found["transposed.weight"] == ("hidden", (18, 3, 2))
    assert found["embedding.weight"] == ("embedding", (1, 3, 5))
    assert found["normed.weight_v"] == ("hidden", (1, 2, 3))
    assert str(scan(model)).startswith("12 weights")
    assert not scan(model).traced and torch.is_tensor(scan(model).weights[0].view.rows)
    assert {w.heads for w in scan(model).weights if w.role in ("q", "k", "v")} == {2}


@pytest.mark.parametrize(
    "name", ["vit_separate", "vit_fused", "vit_mha", "transformer_encoder", "gpt", "gpt2", "llama"]
)
def test_queries_and_keys_by_name_are_the_traced_ones(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    found, traced = scan(ZOO[name].build()), graph_of(ZOO[name])
    for role in ("q", "k", "v"):
        assert {w.name for w in found.weights if w.role == role} == {w.name for w in traced.weights if w.role == role}
    assert found.roles_known and not found.unclear
    assert {w.name for w in found.weights if w.tied} == {w.name for w in traced.weights if w.tied}


@pytest.mark.parametrize("name", ["mlp", "resnet_basic", "squeeze_excite"])
def test_without_attention_names_tell_nothing(name):
    found = scan(ZOO[name].build())
    assert not found.roles_known and not found.unclear and {w.role for w in found.weights} == {"hidden"}


class SelfAttention(nn.Module):
    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)


class Block(SelfAttention):
    """Not named attention."""


def test_what_is_fused_is_split_or_listed():
    split = scan(nn.Sequential(SelfAttention(qkv=nn.Conv2d(4, 12, 1)), SelfAttention(to_qkv=nn.Linear(4, 12))))
    assert {w.name: w.sizes for w in split.weights}["0.qkv.weight[k]"] == (1, 4, 4)
    assert split.roles_known and len(split.weights) == 6
    for layers in (
        {"qkv": nn.Linear(4, 8)},
        {"query_key_value": nn.Linear(4, 12)},
        {"q": nn.Linear(4, 4), "kv": nn.Linear(4, 8)},
        {"mix": nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 12))},
    ):
        found = scan(nn.Sequential(SelfAttention(**layers)))
        assert len(found.unclear) == 1 and not found.roles_known, layers
        assert all(f"0.{name}" in next(iter(found.unclear)) for name in [*layers][-1:])
    depthwise = scan(SelfAttention(q=nn.Linear(4, 4), k=nn.Linear(4, 4), qkv_mix=nn.Conv1d(12, 12, 3, groups=12)))
    assert not depthwise.unclear and depthwise.roles_known
    assert not scan(nn.Sequential(Block(q=nn.Linear(4, 4), k=nn.Linear(4, 4)))).roles_known
    assert not scan(Block(a=SelfAttention(q=nn.Linear(4, 4), k=nn.Linear(4, 4)), query=nn.Linear(4, 4))).roles_known
