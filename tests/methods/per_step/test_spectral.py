"""Spectral regularization against singular values, and the vector that is kept."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


def settled(keeper, steps=300):
    for _ in range(steps):
        keeper.step()
    return keeper


def top(matrix):
    return torch.linalg.matrix_norm(matrix, 2)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_formula(power):
    model = ZOO["mlp"].build()
    keeper = settled(rk.Keeper(model, methods=f"spectral:strength=0.1,power={power}"))
    weights = sum((top(p) ** power - 1) ** 2 for p in model.parameters() if p.dim() == 2)
    biases = sum(p.norm() ** (2 * power) for p in model.parameters() if p.dim() == 1)
    expected = torch.autograd.grad(0.1 * (weights + biases), list(model.parameters()))
    penalty = keeper.penalty()
    penalty.backward()
    assert penalty.item() == pytest.approx(0.1 * (weights + biases).item(), rel=1e-4)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(p.grad, gradient, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("traced", [True, False])
def test_groups_shifts_and_scales(traced):
    """Each group has its own largest singular value; shifts count as additive, scales do not count."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.ReLU())
    with torch.no_grad():
        model[1].bias.fill_(0.5)
    given = {"example": torch.zeros(2, 4, 5, 5)} if traced else {}
    keeper = settled(rk.Keeper(model, methods="spectral:strength=1,power=2", **given))
    weights = sum((top(part.flatten(1)) ** 2 - 1) ** 2 for part in model[0].weight.chunk(2))
    expected = weights + model[0].bias.norm() ** 4 + model[1].bias.norm() ** 4
    penalty = keeper.penalty()
    penalty.backward()
    assert penalty.item() == pytest.approx(expected.item(), rel=1e-4)
    assert model[1].weight.grad is None
    assert model[1].bias.grad is not None


def test_one_iteration_a_step_follows_the_weights():
    torch.manual_seed(0)
    model = nn.Linear(12, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    keeper = rk.Keeper(model, optimizer, "spectral:strength=1")
    with torch.no_grad():
        model.weight.mul_(2.0)
    for _ in range(400):
        optimizer.zero_grad()
        keeper.penalty().backward()
        optimizer.step()
        keeper.step()
    assert top(model.weight).item() == pytest.approx(1.0, abs=1e-2)


def test_leaves_small_singular_values_alone():
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.diag(torch.tensor([3.0, 0.5])))
    settled(keeper := rk.Keeper(model, methods="spectral:strength=1")).penalty().backward()
    assert torch.allclose(model.weight.grad, torch.diag(torch.tensor([2 * 8 * 2 * 3.0, 0.0])), atol=1e-3)
    assert keeper.penalty().item() == pytest.approx(64.0, rel=1e-5)


def test_penalty_does_not_move_the_vector_but_a_step_does():
    model = ZOO["mlp"].build()
    keeper = rk.Keeper(model, methods="spectral:strength=1")
    first = keeper.penalty().item()
    assert keeper.penalty().item() == first
    with torch.no_grad():
        next(model.parameters()).normal_(generator=torch.Generator().manual_seed(3))
    before = keeper.penalty().item()
    keeper.step()
    assert keeper.penalty().item() > before  # nearer to the largest singular value


def test_vectors_depend_on_the_seed():
    model = ZOO["mlp"].build()
    drawn = [rk.Keeper(model, methods="spectral", seed=seed).state("spectral").vectors for seed in (0, 0, 1)]
    name = next(iter(drawn[0]))
    assert torch.equal(drawn[0][name], drawn[1][name])
    assert not torch.equal(drawn[0][name], drawn[2][name])


def test_embeddings_and_tokens_are_left_out():
    for name in ("gpt", "vit_mha"):
        model = ZOO[name].build()
        keeper = rk.Keeper(model, methods="spectral:strength=1", graph=graph_of(ZOO[name]))
        keeper.penalty().backward()
        scales = {m.weight for m in model.modules() if isinstance(m, nn.LayerNorm)}
        tables = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
        without = {p for p in model.parameters() if p.grad is None}
        assert without == scales | tables | {p for p in model.parameters() if p.dim() == 3}


def test_skip():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    keeper = settled(rk.Keeper(model, methods="spectral:strength=1,power=1,skip=0.*|1.bias"))
    assert keeper.penalty().item() == pytest.approx((top(model[1].weight).item() - 1) ** 2, abs=1e-5)
