"""Slots that are silenced, disturbed, exchanged; everything else stays as it is, and the tensors themselves too."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from rekindle.graph import trace
from rekindle.graph.modules import tensors_of
from rekindle.graph.proof.disturbance import disturbed, exchanged, of_units, silenced


def setting(hidden=nn.Identity):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    graph = trace(model, torch.ones(2, 3))
    return graph.groups[0], {name: t.detach() for name, t in tensors_of(model).items()}


def test_only_the_slots_change_and_nothing_is_written():
    group, tensors = setting()
    before = {name: t.clone() for name, t in tensors.items()}
    silent = silenced(tensors, group.outgoing, {})
    assert set(silent) == {"3.weight"} and not silent["3.weight"].any()
    moved = disturbed(tensors, (*group.incoming, *group.norms), silent, group.outgoing, 0)
    assert moved["3.weight"] is silent["3.weight"]
    assert all((moved[name] != tensors[name]).any() for name in ("0.weight", "0.bias", "1.weight"))
    assert bool((moved["1.running_var"] > 0).all())
    assert all(torch.equal(before[name], t) for name, t in tensors.items())


def test_what_is_spared_stays():
    group, tensors = setting()
    moved = disturbed(tensors, group.incoming, {}, group.incoming[:1], 0)
    assert torch.equal(moved["0.weight"], tensors["0.weight"]) and not torch.equal(moved["0.bias"], tensors["0.bias"])


def test_noise_is_drawn_by_name_and_seed():
    group, tensors = setting()
    one, same, other = (disturbed(tensors, group.incoming, {}, (), seed)["0.weight"] for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_units_are_exchanged_in_all_slots():
    group, tensors = setting()
    order = torch.tensor([1, 0, 2, 3])
    turned = exchanged(tensors, (*group.incoming, *group.norms), {}, (), order)
    assert all(torch.equal(turned[name], tensors[name][order]) for name in ("0.weight", "0.bias", "1.running_mean"))


def test_some_units_only():
    group, tensors = setting()
    moved = disturbed(tensors, of_units(group.incoming, torch.tensor([2])), {}, (), 0)
    assert (moved["0.weight"] != tensors["0.weight"]).any(1).tolist() == [False, False, True, False]


def test_a_direction_is_silenced_by_its_gain():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), weight_norm(nn.Linear(4, 2)))
    graph = trace(model, torch.ones(2, 3))
    tensors = {name: t.detach() for name, t in tensors_of(model).items()}
    silent = silenced(tensors, graph.groups[0].outgoing, graph.gains)
    gain, direction = (silent[f"2.parametrizations.weight.original{n}"] for n in range(2))
    assert not gain.any() and bool((direction == 1).all())
