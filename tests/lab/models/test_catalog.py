from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.lab.models import AllCNN, NatureCNN, build, simba_actor, simba_critic
from rekindle.lab.models.catalog import NETWORKS

COLOUR = SimpleNamespace(shape=(3, 32, 32), classes=7)
FRAMES = SimpleNamespace(shape=(4, 84, 84), classes=6)
TEXT = SimpleNamespace(shape=(16,), classes=7, is_text=True)
SMALL = {
    "mlp": "mlp:hidden=8|8",
    "mlp_synthetic": "mlp_synthetic",
    "simba": "simba:dim=8,depth=1",
    "resnet18": "resnet18:width=4",
    "resnet50": "resnet50:width=4",
    "all_cnn": "all_cnn:width=16",
    "mobilenet": "mobilenet:width=0.1",
    "cnn": "cnn:channels=4,hidden=8",
    "cnn_bn": "cnn_bn:channels=4,hidden=8",
    "vgg16": "vgg16:width=32",
    "scnn": "scnn:channels=4|8,hidden=8",
    "vit": "vit:dim=12,depth=1,patch_size=8",
    "nature_cnn": "nature_cnn:width=8,hidden=16",
    "gpt": "gpt:dim=12,depth=1,heads=2",
}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_built_for_data_and_understood(name):
    data = {"nature_cnn": FRAMES, "gpt": TEXT}.get(name, COLOUR)
    model = build(SMALL[name], data)
    example = torch.randint(7, (2, 16)) if data is TEXT else torch.randn(2, *data.shape)
    assert model(example).shape == (2, *([16] if data is TEXT else []), data.classes)
    graph = rk.trace(model, example)
    assert not graph.uncovered
    roles = [weight.role for weight in graph.weights]
    assert roles.count("head") == (0 if data is TEXT else 1)  # the head of a GPT is its embedding


def test_networks_for_text_take_text_and_no_others_do():
    for name, data in (("gpt", COLOUR), ("mlp", TEXT), ("resnet18", TEXT)):
        with pytest.raises(SettingsError, match="tokens"):
            build(SMALL[name], data)
    for settings in ("dim=12,heads=5", "dim=12,heads=2,dropout=1.5"):
        with pytest.raises(SettingsError, match="a multiple of heads, and a dropout"):
            build(f"gpt:depth=1,{settings}", TEXT)
    assert build("gpt:dim=12,depth=1,heads=2,multiple=64", TEXT).lm_head.out_features == 64


@pytest.mark.parametrize(
    ("spec", "shape", "classes", "published"),
    [
        ("mlp", (1, 28, 28), 10, 89_610),
        ("mlp_synthetic", (128,), 8, 128 * 32 + 32 + 32 * 32 + 32 + 32 * 8 + 8),
        ("nature_cnn", (4, 84, 84), 6, 1_687_206),
        ("all_cnn:batch_norm=false", (3, 32, 32), 10, 1_369_738),
        ("resnet50", (3, 224, 224), 1000, 25_557_032),
    ],
)
def test_published_sizes(spec, shape, classes, published):
    with torch.device("meta"):
        data = SimpleNamespace(shape=shape, classes=classes)
        assert count(build(spec, data)) == published


def test_all_cnn_norms_follow_each_convolution_but_the_last():
    norms = [module for module in AllCNN().modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 8
    assert not [module for module in AllCNN(batch_norm=False).modules() if isinstance(module, nn.BatchNorm2d)]


def test_scnn_normalizes_each_example_over_channels_and_places():
    model = build("scnn:channels=4|8,hidden=8", COLOUR)
    norms = [module for module in model.modules() if isinstance(module, nn.GroupNorm)]
    assert [norm.num_groups for norm in norms] == [1, 1, 1, 1]


def test_shallow_mobilenet_is_shorter():
    whole, shallow = (build(f"mobilenet:width=0.1,shallow={flag}", COLOUR) for flag in ("false", "true"))
    assert (len(whole.blocks), len(shallow.blocks)) == (13, 8)


@pytest.mark.parametrize("name", ["vgg16", "mobilenet", "resnet50"])
def test_layer_normalization_takes_the_place_of_batch_norm(name):
    batch, layer = (build(f"{SMALL[name]},norm={norm}", COLOUR) for norm in ("batch", "layer"))
    kinds = [{type(module): path for path, module in model.named_modules()} for model in (batch, layer)]
    assert (nn.BatchNorm2d in kinds[0], nn.GroupNorm in kinds[0]) == (True, False)
    assert (nn.BatchNorm2d in kinds[1], nn.GroupNorm in kinds[1]) == (False, True)
    assert dict(layer.named_parameters()).keys() == dict(batch.named_parameters()).keys()
    graph = rk.trace(layer, torch.randn(2, *COLOUR.shape))
    assert not graph.uncovered


@pytest.mark.parametrize("name", ["vgg16", "mobilenet", "resnet50", "scnn"])
def test_dropout_acts_before_the_head_while_training(name):
    model = build(f"{SMALL[name]},dropout=0.5", COLOUR)
    dropped = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    assert [module.p for module in dropped] == [0.5]
    seen = []
    dropped[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    model.train()(torch.randn(2, *COLOUR.shape))
    assert seen[0].shape[1] == list(model.modules())[-1].in_features


def test_simba_sizes_of_the_paper():
    actor, critic = simba_actor(51, 19), simba_critic(51, 19)
    assert (len(actor.blocks), actor.embed.out_features, actor.head.out_features) == (1, 128, 38)
    assert (len(critic.blocks), critic.embed.in_features, critic.head.out_features) == (2, 70, 1)


def test_simba_normalizes_by_all_it_was_told():
    norm = simba_actor(3, 2, dim=8).running
    seen = 5 * torch.randn(40, 3) + 2
    norm.update(seen[:10])
    norm.update(seen[10:])
    torch.testing.assert_close(norm.mean, seen.mean(0))
    torch.testing.assert_close(norm.var, seen.var(0, correction=0))
    torch.testing.assert_close(norm(seen).std(0, correction=0), torch.ones(3), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("spec", "shape", "part"),
    [
        ("cnn", (1, 8, 8), "at least 16x16"),
        ("resnet18", (128,), "square images"),
        ("resnet18:depth=3", (3, 32, 32), "settings of resnet18: width"),
        ("perceptron", (3, 32, 32), "networks: mlp"),
        ("mlp:hidden=ten", (3, 32, 32), "hidden of mlp"),
        ("vit:image_size=8", (3, 32, 32), "settings of vit"),
    ],
)
def test_mistakes_are_told(spec, shape, part):
    with pytest.raises(SettingsError) as told:
        build(spec, SimpleNamespace(shape=shape, classes=10))
    assert part in str(told.value)


def test_nature_cnn_on_smaller_frames():
    assert NatureCNN(3, image_size=44)(torch.zeros(1, 4, 44, 44)).shape == (1, 3)
