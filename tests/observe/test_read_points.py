"""Where units can be seen, against a graph that is known; and their layout in one vector, against loops."""

import pytest
import torch
from torch import nn

from rekindle.graph import trace
from rekindle.observe.read_points import Layout, Reader, ReadPoint, find_read_points
from rekindle.testing import ZOO
from rekindle.testing.aged import bits, graph_of, hooks, same


def points_of(name):
    member = ZOO[name]
    graph = graph_of(member)
    model = member.build()
    before = bits(model)
    found, unseen = find_read_points(model, [g for g in graph.groups if g.outgoing], member.example())
    same(before, bits(model), "looking changed")
    assert not any(hooks(model)) and model.training
    return graph, found, unseen


@pytest.mark.parametrize("name", ["mlp", "vgg", "resnet_basic", "vit_separate", "gpt", "grouped_conv", "densenet"])
def test_a_group_is_seen_at_all_its_readers_or_named(name):
    graph, found, unseen = points_of(name)
    for group in graph.groups:
        mine = [point for point in found if point.group == group.name]
        read = sorted(tensor for point in mine for tensor in point.tensors)
        if group.name in unseen:
            assert not mine and unseen[group.name]
        else:
            assert read == sorted(slot.tensor for slot in group.outgoing)
        for point in mine:
            assert point.index.shape[0] == group.size and int(point.index.max()) < point.reader.features


def test_queries_keys_and_values_take_in_the_same_and_are_one_point():
    _, found, _ = points_of("vit_separate")
    joined = [point.tensors for point in found if len(point.tensors) == 3]
    assert joined and all({t.split(".")[-2] for t in tensors} == {"q", "k", "v"} for tensors in joined)


def test_a_flatten_repeats_units_and_plain_layers_are_in_order():
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.ones(1, 1, 4, 4)
    found, _ = find_read_points(net, trace(net, x).groups[:2], x)
    assert found[0].index.tolist() == [list(range(4 * n, 4 * n + 4)) for n in range(3)] and not found[0].in_order
    assert found[1].in_order and found[1].reader.biased and found[1].reader == Reader("5", 5, biased=True)


def test_features_of_convolutions_come_first_with_or_without_a_batch():
    conv = Reader("conv", 3, channels_first=True, spatial=2)
    assert conv.dimension(torch.ones(7, 3, 5, 5)) == 1 and conv.dimension(torch.ones(3, 5, 5)) == 0
    assert conv.fits(torch.ones(7, 3, 5, 5)) and not conv.fits(torch.ones(7, 4, 5, 5))
    assert not conv.fits(torch.ones(7, 3, 5, 5, dtype=torch.long))
    assert Reader("fc", 4).dimension(torch.ones(2, 3, 4)) == 2


def point(group, index):
    return ReadPoint(group, Reader("m", 10), torch.tensor(index), ("w",))


LAYOUTS = {
    "plain": [point("a", [[0], [1], [2]])],
    "repeated": [point("a", [[0, 1], [2, 3]]), point("b", [[0], [1], [2]])],
    "two readers": [point("a", [[0], [1]]), point("b", [[5], [4]]), point("a", [[0, 1], [2, 3]])],
    "nothing": [],
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("largest", [False, True])
def test_sums_over_the_features_of_each_unit(name, largest):
    layout = Layout(LAYOUTS[name])
    values = torch.rand(layout.features, generator=torch.Generator().manual_seed(0))
    found = layout.per_unit(values, largest=largest)
    assert len(found) == layout.size
    for group, units in layout.units.items():
        for unit, value in enumerate(found[units].tolist()):
            mine = [
                values[span].reshape(each.index.shape)[unit]
                for each, span in zip(layout.points, layout.spans, strict=True)
                if each.group == group
            ]
            whole = torch.cat(mine)
            assert value == pytest.approx(float(whole.max() if largest else whole.sum()))


def test_positions_of_some_units():
    layout = Layout(LAYOUTS["two readers"])
    which = torch.tensor([layout.units["a"].start + 1, layout.units["b"].start])
    assert sorted(layout.positions(which).tolist()) == [1, 2, 6, 7]
