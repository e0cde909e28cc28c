"""Dirac reset against torch's own dirac_ and eye_, and the published strengths."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.methods.one_shot.dirac_reset import PRESETS
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(4, 6, 3),
        nn.Conv1d(6, 4, 4),
        nn.Conv2d(3, 8, 3),
        nn.Conv2d(8, 3, (5, 2)),
        nn.Conv2d(6, 12, 3, groups=3),
        nn.Conv2d(12, 6, (1, 4), groups=3),
        nn.Conv2d(5, 5, 3, groups=5),
        nn.Conv3d(4, 2, (3, 2, 5), groups=2),
    ],
    ids=str,
)
def test_convolutions_against_torch(layer):
    old = layer.weight.detach().clone()
    rk.dirac_reset_(layer, strength=0.3)
    dirac = nn.init.dirac_(torch.empty_like(old), layer.groups)
    assert torch.equal(layer.weight, torch.where(dirac == 1, old + 0.3, old))


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3)])
def test_linear_against_eye(shape):
    layer = nn.Linear(*shape)
    old = layer.weight.detach().clone()
    rk.dirac_reset_(layer, strength=0.3)
    assert torch.allclose(layer.weight, old + 0.3 * nn.init.eye_(torch.empty_like(old)))


def test_a_frozen_network_passes_its_input_on():
    model = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 3, 3, padding=1, groups=1))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    rk.dirac_reset_(model, strength=1.0, one_dimensional="keep")
    image = torch.randn(1, 3, 6, 6)
    assert torch.allclose(model(image), image)


def test_transposed_convolution_by_group():
    layer = nn.ConvTranspose2d(4, 6, 3, padding=1, groups=2)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    rk.dirac_reset_(layer, strength=1.0, one_dimensional="keep")
    image = torch.randn(1, 4, 5, 5)
    out = layer(image)
    assert torch.allclose(out[:, [0, 1, 3, 4]], image) and (out[:, [2, 5]] == 0).all()


@pytest.mark.parametrize("member", ["vit_fused", "gpt2"])
def test_fused_projections_get_three_identities(member):
    member = ZOO[member]
    if member.requires:
        pytest.importorskip(member.requires)
    model, graph = member.build(), graph_of(member)
    weights = [w for w in graph.weights if w.role in "qkv"]
    old = {w.name: w.view.read(dict(model.named_parameters())[w.tensor].detach()).clone() for w in weights}
    rk.apply_("dirac_reset:strength=0.5", model, graph=graph)
    for weight in weights:
        new = weight.view.read(dict(model.named_parameters())[weight.tensor].detach())
        assert torch.allclose(new, old[weight.name] + 0.5 * torch.eye(weight.out))


def test_weight_norm_gets_it_on_the_effective_weight():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    old = layer.weight.detach().clone()
    rk.dirac_reset_(layer, strength=0.5)
    assert torch.allclose(layer.weight, old + 0.5 * torch.eye(3, 4), atol=1e-6)


@pytest.mark.parametrize(("how", "expected"), [("add", 2.25), ("set", 1.0), ("keep", 2.0)])
def test_one_dimensional_tensors(how, expected):
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
    with torch.no_grad():
        for tensor in (model[0].bias, model[1].weight, model[1].bias):
            tensor.fill_(2.0)
    rk.dirac_reset_(model, strength=0.25, one_dimensional=how)
    assert all((t == expected).all() for t in (model[0].bias, model[1].weight, model[1].bias))
    assert (model[1].running_var == 1).all()


def test_embeddings_and_tokens_are_left_alone_with_a_word():
    for member, name in (("gpt", "wte.weight"), ("vit_fused", "cls_token")):
        planned = rk.plan("dirac_reset", ZOO[member].build(), graph=graph_of(ZOO[member]))
        assert name in {skip.tensor for skip in planned.skips}
        assert name not in {edit.tensor for edit in planned.edits}


def test_moments_go_where_something_was_added():
    layer = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0, momentum=0.9)
    layer(torch.rand(5, 4) + 1).sum().backward()
    optimizer.step()
    rk.dirac_reset_(layer, optimizer)
    assert torch.equal(optimizer.state[layer.weight]["momentum_buffer"] == 0, torch.eye(3, 4).bool())


def test_thirteen_presets_as_published():
    """Z, Tables 6-8, row by row."""
    rows = [(s, h) for s, h in PRESETS.values()]
    assert rows == [
        *((0.2, "add"), (0.1, "add"), (0.4, "set"), (0.5, "add"), (0.2, "add"), (0.4, "set"), (0.4, "set")),
        *((0.05, "set"), (0.01, "add"), (0.05, "add"), (0.05, "add")),
        *((0.01, "add"), (0.01, "add")),
    ]


def test_settings_override_the_preset():
    settings = rk.method("dirac_reset:preset=mnist_to_fashion_mnist,strength=0.7")
    assert settings.resolved() == (0.7, "set")
    assert rk.method("dirac_reset:preset=svhn_to_cifar10,one_dimensional=keep").resolved() == (0.4, "keep")
    assert rk.method("dirac_reset").resolved() == (0.2, "add")


def test_an_unknown_preset_lists_the_names():
    with pytest.raises(SettingsError, match="cifar10_to_cifar100.*imagenet_to_patch_camelyon"):
        rk.method("dirac_reset:preset=cifar")


def test_without_an_example_it_says_what_it_cannot_know():
    assert "not traced" in rk.dirac_reset_(nn.Linear(3, 2)).notices[0]
    assert not rk.dirac_reset_(nn.Linear(3, 2), example=torch.zeros(1, 3)).notices
