"""Weights by name and shape alone, against the model that the names come from."""

import pytest

from rekindle.graph.modules import tensors_of
from rekindle.graph.scan import scan
from rekindle.graph.scan_state_dict import scan_state_dict
from rekindle.testing import ZOO

PLAIN = ["mlp", "vgg", "resnet_bottleneck", "conv1d", "conv3d", "lstm_classifier", "gru_cells", "relu_rnn"]
ATTENTION = ["vit_separate", "vit_fused", "vit_mha", "gpt", "gpt2", "llama"]


# Models without groups and transposed convolutions, which names cannot tell.
@pytest.mark.parametrize("name", [*PLAIN, *ATTENTION])
def test_matrices_are_those_of_the_model(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    model = ZOO[name].build()
    tensors = tensors_of(model)
    found = {weight.name: weight for weight in scan_state_dict({n: tuple(t.shape) for n, t in tensors.items()}).weights}
    for weight in scan(model).weights:
        other = found.pop(weight.name)
        assert other.sizes == weight.sizes and other.module == weight.module, weight.name
        roles = [role if (role := each.role) in ("q", "k", "v", "embedding") else "other" for each in (other, weight)]
        assert roles[0] == roles[1], weight.name
        assert other.view.read(tensors[weight.tensor]).equal(weight.view.read(tensors[weight.tensor]))
    assert not found
    graph = scan_state_dict({n: tuple(t.shape) for n, t in tensors.items()})
    assert graph.roles_known is (name in ATTENTION) and not graph.unclear


def test_a_recurrent_weight_that_is_not_told_by_shapes_is_named():
    graph = scan_state_dict({"rnn.weight_ih_l0": (10, 4), "rnn.weight_hh_l0": (10, 5), "other.weight_ih": (6, 6)})
    assert set(graph.unclear) == {"rnn.weight_ih_l0", "rnn.weight_hh_l0", "other.weight_ih"}
    assert "missing" in graph.unclear["other.weight_ih"] and "(10, 4)" in graph.unclear["rnn.weight_ih_l0"]
    assert {weight.batch for weight in graph.weights} == {1}


def test_vectors_and_single_rows_are_no_weights():
    graph = scan_state_dict({"bias": (4,), "row": (1, 4), "column": (4, 1), "scale": (1, 1, 4), "w": (2, 2)})
    assert [weight.name for weight in graph.weights] == ["w"]
    assert not graph.traced and not graph.groups and not graph.initializers
    assert graph.parameters["bias"] == (4,)


def test_linear_layers_with_the_names_of_gpt_2_are_not_transposed():
    linear = {"h.attn.c_attn.weight": (24, 8), "h.attn.c_proj.weight": (8, 8), "h.mlp.c_proj.weight": (8, 32)}
    assert scan_state_dict(linear).weights[-1].sizes == (1, 8, 32)
    conv1d = {"h.attn.c_attn.weight": (8, 24), "h.attn.c_proj.weight": (8, 8), "h.mlp.c_proj.weight": (32, 8)}
    assert scan_state_dict(conv1d).weights[-1].sizes == (1, 8, 32)
    assert [w.sizes for w in scan_state_dict(conv1d).weights][:3] == [(1, 8, 8)] * 3
    assert scan_state_dict({"mlp.c_proj.weight": (32, 8)}).weights[0].sizes == (1, 8, 32)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("h.0.attention.query_key_value.weight", (24, 8)),
        ("h.0.attention.self.in_proj.weight", (24, 8)),
        ("h.0.self_attn.qkv_proj.weight", (16, 8)),
        ("h.0.attn.kv.weight", (16, 8)),
        ("h.0.attn.W_pack.weight", (24, 8)),
    ],
)
def test_what_names_cannot_tell_apart_is_listed(name, shape):
    graph = scan_state_dict({name: shape, "head.weight": (5, 8)})
    assert [*graph.unclear] == [name] and not graph.roles_known
    assert [weight.name for weight in graph.weights] == [name, "head.weight"]
