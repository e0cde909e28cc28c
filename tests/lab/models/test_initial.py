"""Layers start as they say."""

import pytest
import torch
from torch import nn

from rekindle.graph.scan import scan
from rekindle.lab.models import initial
from rekindle.lab.models.initial import GlorotConv2d, GlorotLinear, HeConv2d, HeLinear

LAYERS = {
    GlorotLinear: ((400, 300), (6 / 700) ** 0.5 / 3**0.5),  # sqrt(6 / (in + out)) is the bound of a uniform draw
    GlorotConv2d: ((40, 30, 3), (6 / (9 * 70)) ** 0.5 / 3**0.5),
    HeLinear: ((400, 300), (2 / 400) ** 0.5),
    HeConv2d: ((40, 30, 3), (2 / (9 * 40)) ** 0.5),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_deviation_and_biases(kind):
    torch.manual_seed(0)
    sizes, deviation = LAYERS[kind]
    layer = kind(*sizes)
    assert float(layer.weight.detach().std()) == pytest.approx(deviation, rel=0.03)
    assert not layer.bias.any() and kind(*sizes, bias=False).bias is None


@pytest.mark.parametrize("kind", LAYERS)
def test_methods_that_draw_a_layer_afresh_follow_it(kind):
    sizes, deviation = LAYERS[kind]
    graph = scan(nn.Sequential(kind(*sizes)))
    drawn = graph.fresh("0.weight", graph.parameters["0.weight"], 0, "test")
    assert float(drawn.std()) == pytest.approx(deviation, rel=0.03)
    assert not graph.fresh("0.bias", graph.parameters["0.bias"], 0, "test").any()


@pytest.mark.parametrize(("init", "kinds"), [("glorot", (GlorotLinear, GlorotConv2d)), ("he", (HeLinear, HeConv2d))])
def test_all_layers_of_a_network_are_drawn_anew(init, kinds):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 4))
    made = initial.drawn(net, init)
    assert isinstance(made[0], kinds[1]) and isinstance(made[3], kinds[0]) and type(made[1]) is nn.BatchNorm2d
    assert not made[0].bias.any() and not made[3].bias.any()
    plain = nn.Sequential(nn.Linear(3, 2))
    before = plain[0].weight.detach().clone()
    assert torch.equal(initial.drawn(plain, "torch")[0].weight, before)
