"""WELS: the part is fixed by mask_seed, the values by seed."""

import torch
from torch import nn

import rekindle as rk


def treated(seed, mask_seed):
    layer = nn.Linear(50, 40)
    with torch.no_grad():
        layer.weight.fill_(7.0)
    rk.wels_(layer, seed=seed, mask_seed=mask_seed)
    return layer.weight.detach()


def test_the_part_stays_and_the_values_change():
    a, b, c = treated(0, 3), treated(1, 3), treated(0, 4)
    assert torch.equal(a != 7, b != 7) and int((a != 7).sum()) == 400
    assert (a[a != 7] != b[b != 7]).all()
    assert not torch.equal(a != 7, c != 7)
    both = (a != 7) & (c != 7)
    assert both.any() and torch.equal(a[both], c[both])  # values come from the seed alone


def test_what_is_never_drawn_survives_every_round():
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
    start = [p.detach().clone() for p in model.parameters()]
    for seed in range(5):
        rk.wels_(model, seed=seed)
    kept = [int((p == s).sum()) for p, s in zip(model.parameters(), start, strict=True)]
    assert kept == [80, 8, 40, 4]


def test_layers_of_equal_shape_have_different_parts():
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
    start = [layer.weight.detach().clone() for layer in model]
    rk.wels_(model)
    first, second = ((layer.weight != old) for layer, old in zip(model, start, strict=True))
    assert not torch.equal(first, second)
