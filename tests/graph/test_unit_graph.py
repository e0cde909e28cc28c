"""What can be asked of a graph."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from rekindle.graph import trace
from rekindle.testing import NOT_UNDERSTOOD, ZOO
from rekindle.testing.aged import graph_of


def test_groups_weights_and_views_by_name():
    graph = graph_of(ZOO["vit_fused"])
    for group in graph.groups:
        assert graph.group(group.name) is group
    with pytest.raises(KeyError):
        graph.group("nothing")
    fused = next(weight.tensor for weight in graph.weights if weight.role == "q")
    assert [weight.role for weight in graph.weights_of(fused)] == ["q", "k", "v"]
    assert [view.rows.tolist() for view in graph.views()[fused]] == [
        weight.view.rows.tolist() for weight in graph.weights_of(fused)
    ]


def test_embeddings_hold_no_matrices():
    graph = graph_of(ZOO["gpt"])
    embeddings = {weight.tensor for weight in graph.weights if weight.role == "embedding"}
    others = {weight.tensor for weight in graph.weights if weight.role != "embedding"}
    assert embeddings - others and set(graph.views()) == others


def test_statistics_are_what_is_drawn_and_not_trained():
    graph = graph_of(ZOO["cnn_bn"])
    model = ZOO["cnn_bn"].build()
    assert set(graph.statistics()) == {name for name, _ in model.named_buffers()}


def test_a_fresh_draw_depends_on_seed_name_and_reason_and_follows_the_layers_own_initializer():
    graph = trace(nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 400)), torch.ones(1, 400))

    def draw(name="0.weight", seed=0, reason="test"):
        return graph.fresh(name, graph.parameters[name], seed, reason)

    assert torch.equal(draw(), draw())
    assert not torch.equal(draw(), draw(seed=1)) and not torch.equal(draw(), draw(reason="other"))
    assert not torch.equal(draw().flatten(), draw("2.weight").flatten())
    bound = 400**-0.5
    assert bound * 0.99 < float(draw().abs().max()) <= bound
    assert float(draw().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert graph.has_initializer("0.bias") and not graph.has_initializer("nothing")
    assert graph.fresh("nothing", (2,), 0, "test") is None


def test_under_weight_norm_gain_and_direction_are_of_one_draw():
    graph = trace(nn.Sequential(weight_norm(nn.Linear(5, 3))), torch.ones(1, 5))
    ((gain, (direction, dim)),) = graph.gains.items()
    drawn = graph.fresh(direction, graph.parameters[direction], 0, "test")
    size = graph.fresh(gain, graph.parameters[gain], 0, "test")
    assert dim == 0 and size.shape == graph.parameters[gain]
    torch.testing.assert_close(size.flatten(), drawn.norm(dim=1))
    assert graph.has_initializer(gain)


def test_it_prints_groups_weights_and_what_is_missing():
    member = NOT_UNDERSTOOD["unknown_op"]
    text = str(trace(member.build(), member.example(), strict=False))
    assert "weights" in text and "not understood, left out: " in text
    lines = str(graph_of(ZOO["cnn_bn"])).splitlines()
    assert lines[0].endswith(" unit groups") and any("fan-in" in line for line in lines)
    assert any("model output" in line for line in lines)
