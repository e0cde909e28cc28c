"""The gradient of the penalty where somebody else computes the loss."""

import torch
from torch import nn

import rekindle as rk
from rekindle.keeper.penalty_gradient import add_penalty_gradient


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def gradients(net):
    return [p.grad for p in net.parameters()]


def test_it_is_what_backward_of_the_sum_gives():
    x, ours, theirs = torch.randn(5, 3), network(), network()
    keepers = [rk.Keeper(net, None, "l2:strength=0.3+parseval:strength=0.1") for net in (ours, theirs)]
    add_penalty_gradient(keepers[0], ours.parameters())
    ours(x).square().mean().backward()
    (theirs(x).square().mean() + keepers[1].penalty()).backward()
    torch.testing.assert_close(gradients(ours), gradients(theirs))


def test_before_or_after_the_loss_is_the_same():
    x, before, after = torch.randn(5, 3), network(), network()
    add_penalty_gradient(rk.Keeper(before, None, "l2:strength=0.3"), before.parameters())
    for net in (before, after):
        net(x).square().mean().backward()
    add_penalty_gradient(rk.Keeper(after, None, "l2:strength=0.3"), after.parameters())
    torch.testing.assert_close(gradients(before), gradients(after))


def test_it_is_scaled_as_the_loss_is():
    plain, scaled = network(), network()
    add_penalty_gradient(rk.Keeper(plain, None, "l2"), plain.parameters())
    add_penalty_gradient(rk.Keeper(scaled, None, "l2"), scaled.parameters(), scale=1024.0)
    torch.testing.assert_close([g * 1024 for g in gradients(plain)], gradients(scaled))


def test_parameters_that_are_frozen_and_methods_without_a_penalty_get_none():
    net = network()
    net[0].requires_grad_(False)
    add_penalty_gradient(rk.Keeper(net, None, "l2"), net.parameters())
    assert net[0].weight.grad is None and net[2].weight.grad is not None
    alone = network()
    add_penalty_gradient(rk.Keeper(alone, None, "soft_rescale", example=torch.zeros(1, 3)), alone.parameters())
    assert gradients(alone) == [None] * 4


def test_a_gradient_is_laid_out_as_its_parameter_and_is_its_own():
    net = network()
    add_penalty_gradient(rk.Keeper(net, None, "parseval:strength=0.1+l2"), net.parameters())
    assert all(p.grad.stride() == p.stride() and p.grad.grad_fn is None for p in net.parameters())
    assert len({p.grad.data_ptr() for p in net.parameters()}) == 4
