"""L2 by hand, and against the weight decay of SGD, which is the same thing."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.testing import ZOO


def squares(tensors):
    return sum(t.detach().double().square().sum() for t in tensors).item()


def test_is_the_weight_decay_of_sgd():
    batch = ZOO["cnn_bn"].example()
    results = []
    for decay, methods in ((0.1, ()), (0.0, "l2:strength=0.1")):
        model = ZOO["cnn_bn"].build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=decay)
        keeper = rk.Keeper(model, optimizer, methods)
        for _ in range(3):
            optimizer.zero_grad()
            (model(batch).square().mean() + keeper.penalty()).backward()
            optimizer.step()
            keeper.step()
        results.append(list(model.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["cnn_bn", "vit_mha", "gpt", "weight_norm_mlp"])
def test_counts_every_trained_parameter_once(name):
    model = ZOO[name].build()
    first = next(model.parameters()).requires_grad_(False)
    keeper = rk.Keeper(model, methods="l2:strength=0.5")
    expected = 0.25 * squares(p for p in model.parameters() if p is not first)
    assert keeper.penalty().item() == pytest.approx(expected, rel=1e-5)


def test_weights_only_and_skip():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))
    weights = rk.Keeper(model, methods="l2:strength=2,which=weights")
    assert weights.penalty().item() == pytest.approx(squares([model[0].weight, model[3].weight]), rel=1e-5)
    some = rk.Keeper(model, methods="l2:strength=2,which=weights,skip=3.*")
    assert some.penalty().item() == pytest.approx(squares([model[0].weight]), rel=1e-5)
    assert rk.Keeper(model, methods="l2:skip=*").penalty() == 0.0


def test_scaled_losses_scale_the_gradient():
    model = nn.Linear(3, 2)
    keeper = rk.Keeper(model, methods="l2:strength=0.5")
    (1024 * keeper.penalty()).backward()  # as a GradScaler does
    assert torch.equal(model.weight.grad, 512 * model.weight)
