"""L2 Init by hand: both forms, where the start comes from, and that it stays."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.testing import ZOO


def moved(model, by):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(by)


@pytest.mark.parametrize(("form", "factor"), [("half", 0.05), ("full", 0.1)])
def test_both_forms(form, factor):
    model = ZOO["vit_fused"].build()
    start = [p.detach().clone() for p in model.parameters()]
    keeper = rk.Keeper(model, methods=f"l2_init:strength=0.1,form={form}")
    moved(model, 0.5)
    slow = factor * sum((p - s).square().sum() for p, s in zip(model.parameters(), start, strict=True))
    expected = torch.autograd.grad(slow, list(model.parameters()))
    penalty = keeper.penalty()
    penalty.backward()
    assert penalty.item() == pytest.approx(slow.item(), rel=1e-5)
    assert all(torch.allclose(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))


def test_pulls_back_to_the_start():
    model = nn.Linear(4, 3)
    start = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    keeper = rk.Keeper(model, optimizer, "l2_init:strength=1.0")
    moved(model, 2.0)
    for halvings in (1, 2, 3):
        optimizer.zero_grad()
        keeper.penalty().backward()
        optimizer.step()
        assert torch.allclose(model.weight - start, torch.full((3, 4), 2.0 * 0.5**halvings), atol=1e-6)


def test_reference_that_is_given():
    model = nn.Linear(2, 1)
    zeros = {name: torch.zeros_like(t) for name, t in model.state_dict().items()}
    keeper = rk.Keeper(model, methods="l2_init:strength=2", reference=zeros)
    size = sum(p.detach().square().sum() for p in model.parameters()).item()
    assert keeper.penalty().item() == pytest.approx(size, rel=1e-6)


def test_a_live_state_dict_as_reference_does_not_follow_the_model():
    model = nn.Linear(3, 1, bias=False)
    keeper = rk.Keeper(model, methods="l2_init:strength=2", reference=model.state_dict())
    moved(model, 1.0)
    assert keeper.penalty().item() == pytest.approx(3.0, rel=1e-5)


@pytest.mark.parametrize("reference", [{}, {"weight": torch.zeros(2, 2), "bias": torch.zeros(1)}])
def test_reference_that_does_not_fit(reference):
    with pytest.raises(KeeperError, match="weight"):
        rk.Keeper(nn.Linear(2, 1), methods="l2_init", reference=reference)


def test_rebase_begins_anew():
    model = nn.Linear(2, 1)
    keeper = rk.Keeper(model, methods="l2_init:strength=2")
    moved(model, 1.0)
    keeper.rebase()
    assert keeper.penalty().item() == 0
    moved(model, 1.0)
    assert keeper.penalty().item() == pytest.approx(3.0, rel=1e-5)


def test_weights_only():
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    keeper = rk.Keeper(model, methods="l2_init:strength=2,which=weights")
    moved(model, 1.0)
    assert keeper.penalty().item() == pytest.approx(6.0, rel=1e-5)
