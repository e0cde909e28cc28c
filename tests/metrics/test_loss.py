"""The mean loss, its gradient and its curvature, against autograd on the model itself."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.metrics._loss import MeanLoss
from rekindle.testing.aged import bits, same
from tests.metrics.live import classification, live, tiny, vectors


def wide():
    torch.manual_seed(0)
    return tiny().double(), [(x.double(), y) for x, y in vectors()]


def by_hand(model, batches):
    return sum(classification(model, batch) for batch in batches) / len(batches)


def test_value_and_gradient():
    model, batches = wide()
    loss = MeanLoss(live(model, batches))
    with loss.open("test"):
        parameters = loss.parameters(trained_only=True)
        value, gradient = loss(parameters), loss.gradient(parameters)
    expected = by_hand(model, batches)
    assert value == pytest.approx(float(expected.detach()))
    for (name, _), found in zip(
        model.named_parameters(), torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(gradient[name], found)
    assert all(p.grad is None for p in model.parameters())


def test_uneven_batches_give_the_loss_gradient_and_curvature_of_all_samples_at_once():
    model, batches = wide()
    every = [torch.cat(parts) for parts in zip(*batches, strict=True)]  # 24 samples
    uneven = [tuple(part[start:end] for part in every) for start, end in ((0, 16), (16, 23), (23, 24))]
    direction = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    found = []
    for given in (uneven, [tuple(every)]):
        loss = MeanLoss(live(model, given))
        with loss.open("test"):
            parameters = loss.parameters(trained_only=True)
            found.append((loss(parameters), loss.gradient(parameters), loss.product(parameters, direction)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    torch.testing.assert_close(found[0][1:], found[1][1:])


def test_at_other_parameters_the_models_own_stay():
    model, batches = wide()
    before = bits(model)
    loss = MeanLoss(live(model, batches))
    with loss.open("test"):
        moved = {name: 2 * value for name, value in loss.parameters(trained_only=True).items()}
        value = loss(moved)
    same(before, bits(model), "changed")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    assert value == pytest.approx(float(by_hand(model, batches).detach()))


def test_the_model_rests_inside_and_its_statistics_stay():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 3)).train()
    loss, before = MeanLoss(live(model, vectors())), bits(model)
    with loss.open("test"):
        values = [loss(loss.parameters(trained_only=True)) for _ in range(2)]
    assert values[0] == values[1] and model.training
    same(before, bits(model), "changed")


def test_frozen_parameters_only_if_asked():
    model, batches = wide()
    first = next(iter(dict(model.named_parameters())))
    model.get_parameter(first).requires_grad_(False)
    loss = MeanLoss(live(model, batches))
    assert set(loss.parameters(trained_only=False)) - set(loss.parameters(trained_only=True)) == {first}


def test_batches_until_there_are_enough_samples():
    batches = [(torch.randn(n, 4), torch.zeros(n, dtype=torch.long)) for n in (2, 3, 4)]
    for samples, taken in ((None, 3), (1, 1), (2, 1), (3, 2), (5, 2), (100, 3)):
        loss = MeanLoss(live(nn.Linear(4, 3), batches), samples)
        assert len(loss.batches) == taken and loss.samples == sum((2, 3, 4)[:taken])


def test_a_loss_of_several_numbers_is_refused():
    subject = live(nn.Linear(4, 3), vectors(), loss=lambda model, batch: model(batch[0]))
    with pytest.raises(PlanError, match="a loss that is one number"):
        MeanLoss(subject)(dict(nn.Linear(4, 3).named_parameters()))
