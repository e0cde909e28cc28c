"""Shapes, published sizes and properties of the papers' networks."""

import pytest
import torch
from torch import nn

from rekindle.lab.models import CNN, CNN_BN, GPT, MLP, VGG16, MobileNetV1, ResNet18, ResNet50, ViT, vit_tiny


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "shape", "classes"),
    [
        (MLP([784, 100, 100, 10]), (1, 28, 28), 10),
        (CNN(10, in_channels=1, image_size=28), (1, 28, 28), 10),
        (CNN(100), (3, 32, 32), 100),
        (CNN_BN(10), (3, 32, 32), 10),
        (VGG16(200, width=16), (3, 64, 64), 200),
        (VGG16(10, image_size=32, width=16, batch_norm=True), (3, 32, 32), 10),
        (ResNet18(10, width=8), (3, 32, 32), 10),
        (ResNet50(7, width=8), (3, 64, 64), 7),
        (MobileNetV1(10, width=0.25), (3, 32, 32), 10),
        (ViT(10, dim=24, depth=2, heads=3), (3, 32, 32), 10),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_logits(model: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    assert model(torch.randn(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize(
    ("build", "published"),
    [
        (lambda: MLP([784, 100, 100, 10]), 89_610),
        (lambda: VGG16(1000, image_size=224), 138_357_544),
        (lambda: ResNet18(10), 11_173_962),
        (lambda: ResNet50(1000), 25_557_032),
        (lambda: MobileNetV1(1000), 4_231_976),
        (lambda: vit_tiny(1000, image_size=224, patch_size=16), 5_717_416),
        (lambda: GPT(50257), 124_439_808),
    ],
    ids=["MLP", "VGG16", "ResNet18", "ResNet50", "MobileNetV1", "vit_tiny", "GPT"],
)
def test_published_parameter_counts(build, published: int) -> None:
    with torch.device("meta"):
        assert count(build()) == published


def test_batch_norm_follows_each_convolution_only_in_cnn_bn() -> None:
    def norms(model: nn.Module) -> int:
        return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())

    assert (norms(CNN()), norms(CNN_BN())) == (0, 2)


def test_vit_spellings_of_attention_are_the_same_function() -> None:
    separate, fused, mha = (
        ViT(5, image_size=8, dim=12, depth=1, heads=3, attention=attention).eval()
        for attention in ("separate", "fused", "mha")
    )
    weights = separate.state_dict()
    prefix = "blocks.0.attention."
    for model, names in (
        (fused, ("qkv.weight", "qkv.bias", "out")),
        (mha, ("mha.in_proj_weight", "mha.in_proj_bias", "mha.out_proj")),
    ):
        renamed = {name: tensor for name, tensor in weights.items() if not name.startswith(prefix)}
        for name, kind in zip(names, ("weight", "bias"), strict=False):
            renamed[prefix + name] = torch.cat([weights[f"{prefix}{role}.{kind}"] for role in "qkv"])
            renamed[f"{prefix}{names[2]}.{kind}"] = weights[f"{prefix}out.{kind}"]
        model.load_state_dict(renamed)
    images = torch.randn(3, 3, 8, 8)
    torch.testing.assert_close(fused(images), separate(images))
    torch.testing.assert_close(mha(images), separate(images))


def test_gpt_head_is_the_token_embedding() -> None:
    model = GPT(vocabulary=17, context=8, dim=12, depth=2, heads=3)
    assert model.lm_head.weight is model.wte.weight
    assert "lm_head.weight" not in dict(model.named_parameters())
    assert model(torch.randint(17, (2, 8))).shape == (2, 8, 17)


def test_gpt_never_looks_ahead() -> None:
    model = GPT(vocabulary=17, context=8, dim=12, depth=2, heads=3).eval()
    tokens = torch.randint(17, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (tokens[0, 5] + 1) % 17
    torch.testing.assert_close(model(tokens)[:, :5], model(changed)[:, :5])
    assert not torch.allclose(model(tokens)[:, 5:], model(changed)[:, 5:])


def test_gpt_draws_projections_onto_the_stream_smaller() -> None:
    model = GPT(vocabulary=65, context=8, dim=64, depth=8, heads=4)
    assert model.h[0].mlp.c_fc.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.h[0].mlp.c_proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert model.h[0].attn.c_attn.bias.abs().max().item() == 0


def test_pooling_before_relu_is_pooling_after_it():
    torch.manual_seed(0)
    net = CNN(batch_norm=True)
    x = torch.randn(8, 3, 32, 32)

    def after(x):
        x = net.pool(net.norm1(net.conv1(x)).relu())
        x = net.pool(net.norm2(net.conv2(x)).relu())
        return net.head(net.fc(x.flatten(1)).relu())

    assert torch.equal(net(x), after(x))
    ours, theirs = (torch.autograd.grad(f(x).square().sum(), list(net.parameters())) for f in (net, after))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
