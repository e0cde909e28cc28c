"""WELSR: a random part, drawn afresh by the layer's own initializer."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.kernels.subsets import random_subset, share


def marked(size=100):
    """A layer whose values no initializer would draw."""
    layer = nn.Linear(size, 40)
    with torch.no_grad():
        layer.weight.fill_(7.0)
        layer.bias.fill_(7.0)
    return layer


def test_exactly_the_fraction_is_drawn_by_the_layers_law():
    layer = marked()
    record = rk.welsr_(layer, fraction=0.2)
    new = layer.weight.detach()[layer.weight != 7]
    assert new.numel() == 800 and int((layer.bias != 7).sum()) == 8 and record.changed == 808
    assert float(new.abs().max()) <= 0.1 and float(new.std()) == pytest.approx(0.1 / 3**0.5, rel=0.1)


def test_another_seed_another_part_the_same_seed_the_same():
    parts = []
    for seed in (0, 0, 1):
        layer = marked()
        rk.welsr_(layer, seed=seed)
        parts.append(layer.weight.detach().clone())
    assert torch.equal(parts[0], parts[1])
    both = int(((parts[0] != 7) & (parts[2] != 7)).sum())
    assert 100 < both < 220  # 4000 * 0.2 * 0.2 = 160 by chance


def test_the_values_are_those_of_a_full_reset_of_that_name():
    """A fraction of one is a full draw; a smaller one takes its elements from the same draw."""
    whole, part = marked(), marked()
    rk.welsr_(whole, fraction=1.0, seed=5)
    rk.welsr_(part, fraction=0.3, seed=5)
    mask = part.weight != 7
    assert torch.equal(part.weight[mask], whole.weight[mask])


def test_moments_are_cleared_at_the_chosen_elements_only():
    layer = marked()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.0)
    layer(torch.randn(3, 100)).square().sum().backward()
    optimizer.step()
    rk.welsr_(layer, optimizer)
    moment = optimizer.state[layer.weight]["exp_avg_sq"]
    assert torch.equal(moment == 0, layer.weight != 7)


def test_weights_only_and_skip():
    layer = marked()
    rk.welsr_(layer, which="weights")
    assert (layer.bias == 7).all() and (layer.weight != 7).any()
    record = rk.welsr_(layer, skip=("weight",))
    assert [skip.reason for skip in record.skips] == ["named in skip"]


def test_a_tensor_too_small_for_its_part_is_listed():
    record = rk.welsr_(nn.Linear(5, 2))
    assert [(skip.tensor, skip.reason[:9]) for skip in record.skips] == [("bias", "too small")]


def test_the_reference_draws():
    layer = marked()
    start = {"weight": torch.full((40, 100), 3.0), "bias": torch.zeros(40)}
    rk.welsr_(layer, reference=start)
    assert not (layer.weight == 3.0).any(), "the weights of the start are no fresh draw"
    rk.welsr_(layer, reference=start, fresh="reference")
    assert set(layer.weight.unique().tolist()) == {3.0, 7.0}


def test_subsets_are_uniform():
    counts = torch.zeros(5)
    for seed in range(2000):
        counts[random_subset(5, 2, torch.Generator().manual_seed(seed))] += 1
    assert ((counts - 800).abs() < 100).all()
    assert share(10, 0.25) == 3 and share(0, 0.5) == 0


def test_fractions_beyond_one_are_refused():
    with pytest.raises(SettingsError):
        rk.method("welsr:fraction=1.2")


@pytest.mark.parametrize("spec", ["welsr", "wels", "dsd", "dsd:scope=global", "dirac_reset", "doubly_sparse"])
def test_channels_last_gets_the_same_values(spec):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Conv2d(5, 4, 3, groups=1))
    last = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Conv2d(5, 4, 3, groups=1))
    last.load_state_dict(plain.state_dict())
    last.to(memory_format=torch.channels_last)
    for model in (plain, last):
        rk.apply_(spec, model)
    assert last[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), last.parameters(), strict=True))
