"""Head reset: which layers are last, and what belongs to them."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError, SettingsError
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 2)
    )


IMAGE = torch.zeros(2, 3, 4, 4)


def edited(member, layers):
    member = ZOO[member]
    settings = rk.method(f"head_reset:layers={layers}")
    return [e.tensor for e in rk.plan(settings, member.build(), graph=graph_of(member), reference=member.build).edits]


def test_the_values_are_those_of_a_full_draw_by_the_layers_law():
    model = classifier()
    with torch.no_grad():
        model[6].weight.fill_(9.0)
        model[6].bias.fill_(9.0)
    old = {n: t.clone() for n, t in model.state_dict().items()}
    rk.head_reset_(model, example=IMAGE, seed=3)
    bound = 7**-0.5
    assert model[6].weight.abs().max() <= bound and model[6].bias.abs().max() <= bound
    assert model[6].weight.std() > 0
    for name, tensor in model.state_dict().items():
        assert name.startswith("6.") or torch.equal(tensor, old[name]), name


def test_all_goes_back_to_the_convolution_and_takes_the_norm_along():
    model = classifier()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.fill_(9.0)
        model[4].running_mean.fill_(9.0)
    record = rk.head_reset_(model, example=IMAGE, layers="all")
    assert {row.tensor.split(".")[0] for row in record.rows} == {"3", "4", "6"}
    assert (model[0].weight == 9).all() and (model[4].weight == 1).all() and (model[4].running_mean == 0).all()
    assert (model[3].weight.abs() <= 0.25).all()


@pytest.mark.parametrize(
    ("member", "layers", "first"),
    [
        ("vgg", 1, ["classifier.4"]),
        ("vgg", 2, ["classifier.4", "classifier.2"]),
        ("vgg", "all", ["classifier.4", "classifier.2", "classifier.0"]),
        ("dueling", 1, ["value", "advantage"]),
        ("dueling", 2, ["value", "advantage", "value_hidden", "advantage_hidden"]),
        ("resnet_basic", "all", ["head"]),
        ("vit_fused", "all", ["head"]),
        ("conv_transpose", "all", ["decode2"]),
    ],
)
def test_which_layers_are_last(member, layers, first):
    assert list(dict.fromkeys(name.rpartition(".")[0] for name in edited(member, layers))) == first


def test_functional_weights_and_weight_norm():
    assert edited("mlp_functional", 2) == ["w3", "w2", "b2"]
    assert edited("weight_norm_mlp", 2)[2:4] == [f"fc.parametrizations.weight.original{n}" for n in (0, 1)]


def test_order_of_definition_does_not_matter():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.a_head, self.body, self.z_head = nn.Linear(5, 2), nn.Linear(3, 5), nn.Linear(5, 4)

        def forward(self, x):
            hidden = self.body(x).relu()
            return self.z_head(hidden), self.a_head(hidden)

    model = Backwards()
    names = {row.tensor for row in rk.head_reset_(model, example=torch.zeros(1, 3)).rows}
    assert names == {"a_head.weight", "a_head.bias", "z_head.weight", "z_head.bias"}


def test_rows_of_a_fused_layer():
    """Half of a layer's outputs leave the model, the others are read: only the first half is the head."""

    class Fused(nn.Module):
        def __init__(self):
            super().__init__()
            self.fused, self.tail = nn.Linear(3, 6), nn.Linear(4, 2)

        def forward(self, x):
            out, hidden = self.fused(x).split([2, 4], dim=-1)
            return out, self.tail(hidden.relu())

    model = Fused()
    old = model.fused.weight.detach().clone()
    rk.head_reset_(model, example=torch.zeros(1, 3))
    changed = (model.fused.weight != old).all(dim=1)
    assert changed.tolist() == [True] * 2 + [False] * 4


def test_a_tied_head_is_left_alone_with_a_word():
    member = ZOO["gpt"]
    with pytest.warns(rk.NoEffectWarning, match="tied to another layer"):
        record = rk.apply_("head_reset", member.build(), graph=graph_of(member))
    assert record.skips[0].tensor == "wte.weight"


def test_fewer_layers_than_asked_for_is_said():
    record = rk.head_reset_(classifier(), example=IMAGE, layers=5)
    assert record.notices[0].startswith("2 of 5 layers")
    assert not rk.head_reset_(classifier(), example=IMAGE, layers=2).notices


def test_an_example_is_asked_for():
    with pytest.raises(PlanError, match="pass example="):
        rk.head_reset_(classifier())
    with pytest.raises(SettingsError):
        rk.method("head_reset:layers=0")
