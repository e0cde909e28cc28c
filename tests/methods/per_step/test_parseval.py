"""Parseval against loops over layers, groups and heads, and that it can be brought to zero."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


def term(matrix, scale=1.0):
    """|W W^T - s I|^2 of one matrix on the smaller side."""
    small = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return (small @ small.T - scale * torch.eye(len(small))).square().sum()


def keeper_of(name, model, spec="parseval:strength=0.5", traced=True):
    member = ZOO[name]
    return rk.Keeper(model, methods=spec, **({"graph": graph_of(member)} if traced else {}))


def agrees(keeper, model, slow):
    """Value and gradients."""
    expected = torch.autograd.grad(slow, list(model.parameters()), allow_unused=True)
    penalty = keeper.penalty()
    penalty.backward()
    assert penalty.item() == pytest.approx(slow.item(), rel=1e-4)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        assert (p.grad is None) == (gradient is None)
        assert gradient is None or torch.allclose(p.grad, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("traced", [True, False])
def test_linear_layers(traced):
    model = ZOO["mlp"].build()
    slow = 0.5 * sum(term(p) for p in model.parameters() if p.dim() == 2)
    agrees(keeper_of("mlp", model, traced=traced), model, slow)


@pytest.mark.parametrize("traced", [True, False])
def test_grouped_convolutions_group_by_group(traced):
    model = ZOO["grouped_conv"].build()
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    kernels = [part.flatten(1) for m in convolutions for part in m.weight.chunk(m.groups)]
    assert len(kernels) > len(convolutions)
    slow = 0.5 * (sum(term(k) for k in kernels) + term(model.head.weight))
    agrees(keeper_of("grouped_conv", model, traced=traced), model, slow)


def test_transposed_convolutions_are_out_by_in_and_kernel():
    model = ZOO["conv_transpose"].build()
    matrices = []
    for m in model.modules():
        if isinstance(m, nn.ConvTranspose2d):
            matrices += [part.transpose(0, 1).flatten(1) for part in m.weight.chunk(m.groups)]
        elif isinstance(m, nn.Conv2d):
            matrices.append(m.weight.flatten(1))
    agrees(keeper_of("conv_transpose", model), model, 0.5 * sum(term(w) for w in matrices))


@pytest.mark.parametrize("name", ["vit_fused", "vit_mha"])
def test_fused_projections_are_three_matrices(name):
    model = ZOO[name].build()
    slow = 0
    for path, p in model.named_parameters():
        if "qkv.weight" in path or "in_proj_weight" in path:
            slow = slow + sum(term(part) for part in p.chunk(3))
        elif p.dim() in (2, 4):
            slow = slow + term(p.flatten(1))
    agrees(keeper_of(name, model), model, 0.5 * slow)


def test_embeddings_are_left_out_also_tied_ones():
    model = ZOO["gpt"].build()
    keeper = keeper_of("gpt", model)
    keeper.penalty().backward()
    assert model.wte.weight.grad is None and model.wpe.weight.grad is None
    assert model.h[0].attn.c_attn.weight.grad is not None
    assert set(keeper.state("parseval").skipped) == {"wte.weight", "wpe.weight"}


def test_what_is_not_known_is_told():
    keeper = rk.Keeper(nn.Sequential(nn.Bilinear(2, 2, 3), nn.Linear(3, 2)), methods="parseval")
    assert keeper.state("parseval").skipped == {"0.weight": "not known to be a weight"}


def test_gates_are_matrices_of_their_own():
    model = ZOO["lstm_classifier"].build()
    weights = [getattr(model.lstm, f"weight_{kind}_l{layer}") for layer in (0, 1) for kind in ("ih", "hh")]
    slow = 0.5 * (sum(term(gate) for weight in weights for gate in weight.chunk(4)) + term(model.head.weight))
    agrees(keeper_of("lstm_classifier", model), model, slow)


def test_weight_norm_is_seen_through():
    model = ZOO["weight_norm_mlp"].build()
    slow = 0.5 * (term(model.conv.weight.flatten(1)) + term(model.fc.weight) + term(model.head.weight))
    agrees(keeper_of("weight_norm_mlp", model), model, slow)


def test_channels_last_is_the_same():
    model = nn.Conv2d(4, 3, 3)
    plain = rk.Keeper(model, methods="parseval").penalty().item()
    last = nn.Conv2d(4, 3, 3).to(memory_format=torch.channels_last)
    last.load_state_dict(model.state_dict())
    penalty = rk.Keeper(last, methods="parseval").penalty()
    penalty.backward()
    assert penalty.item() == pytest.approx(plain, rel=1e-5)
    assert last.weight.grad.any()


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
def test_tall_matrices_reach_zero_too(shape):
    """Published code penalizes a tall matrix for what it cannot reach."""
    torch.manual_seed(0)
    model = nn.Linear(shape[1], shape[0], bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    keeper = rk.Keeper(model, optimizer, "parseval:strength=1,scale=0.5")
    for _ in range(400):
        optimizer.zero_grad()
        keeper.penalty().backward()
        optimizer.step()
        keeper.step()
    assert keeper.penalty().item() < 1e-8
    assert torch.allclose(torch.linalg.svdvals(model.weight), torch.full((3,), 0.5**0.5), atol=1e-4)


def test_skip_and_scale():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    keeper = rk.Keeper(model, methods="parseval:strength=1,scale=4,skip=0.*")
    assert keeper.penalty().item() == pytest.approx(term(model[1].weight, 4.0).item(), rel=1e-5)
    assert keeper.state("parseval").skipped == {"0.weight": "named in skip"}


def test_a_frozen_weight_has_no_penalty():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    model[0].weight.requires_grad_(False)
    keeper = rk.Keeper(model, methods="parseval:strength=1")
    assert keeper.penalty().item() == pytest.approx(term(model[1].weight).item(), rel=1e-5)


def test_bfloat16_autocast_gives_the_same_gradient():
    model = ZOO["mlp"].build()
    keeper = keeper_of("mlp", model)
    plain = torch.autograd.grad(keeper.penalty(), model.parameters(), allow_unused=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        penalty = keeper.penalty()
    cast = torch.autograd.grad(penalty, model.parameters(), allow_unused=True)
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(plain, cast, strict=True))
