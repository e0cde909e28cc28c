"""The proof on the model: it holds for right graphs and fails for wrong ones."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.testing.zoo import ZOO

MEMBERS = list(ZOO)


@pytest.mark.parametrize("name", MEMBERS)
def test_every_group_of_the_zoo_is_proved(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    model, example = ZOO[name].build(), ZOO[name].example()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    graph = rk.trace(model, example)
    proof = graph.verify(model, example)
    leaving = {group.name for group in graph.groups if group.leaves}
    assert set(proof.proved) == {group.name for group in graph.groups} - leaving
    assert set(proof.not_provable) == leaving
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


@pytest.mark.parametrize("name", ["ResNet18", "ResNet50", "MobileNetV1", "VGG16"])
def test_full_size_networks_are_proved(name):
    size = 32 if name == "ResNet18" else 64
    model = getattr(rk.lab.models, name)(**({"image_size": size, "hidden": 64} if name == "VGG16" else {}))
    example = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    graph = rk.trace(model, example)
    proof = graph.verify(model, example)
    assert len(proof.proved) == len(graph.groups) - 1 and len(proof.not_provable) == 1


def broken(graph, name, **changes):
    groups = tuple(replace(g, **changes) if g.name == name else g for g in graph.groups)
    return replace(graph, groups=groups, _by_name={})


def without_reader(group, slot):
    return replace(group, outgoing=tuple(other for other in group.outgoing if other is not slot))


def test_a_reader_that_is_forgotten_is_found():
    model, example = ZOO["resnet_basic"].build(), ZOO["resnet_basic"].example()
    graph = rk.trace(model, example)
    stream = next(g for g in graph.groups if g.kind == "stream")
    for slot in stream.outgoing:
        with pytest.raises(GraphError, match="something reads its units"):
            broken(graph, stream.name, outgoing=without_reader(stream, slot).outgoing).verify(model, example)


def test_a_wrong_map_is_found():
    """Channels of a flatten scrambled: the peers' mistake between a convolution and a linear layer."""
    model, example = ZOO["cnn_bn"].build(), ZOO["cnn_bn"].example()
    graph = rk.trace(model, example)
    group = next(g for g in graph.groups if any(s.where.index.shape[1] > 1 for s in g.outgoing))
    slot = group.outgoing[0]
    half = slot.where.index[: group.size // 2]
    with pytest.raises(GraphError):
        wrong = replace(slot, where=replace(slot.where, index=half))
        broken(graph, group.name, outgoing=(wrong,)).verify(model, example)


def test_units_that_do_nothing_are_found():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    graph = rk.trace(model, torch.ones(1, 3))
    with torch.no_grad():
        model[2].weight.zero_()
    assert "without effect" in graph.verify(model, torch.ones(1, 3)).not_provable["0"]


def test_units_that_nothing_reads_are_listed():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(3, 4)

        def forward(self, x):
            self.spare(x)
            return self.used(x)

    graph = rk.trace(Spare(), torch.ones(1, 3))
    assert graph.group("spare").outgoing == () and not graph.group("spare").leaves
    assert graph.verify(Spare(), torch.ones(1, 3)).not_provable["spare"] == "nothing reads it"
    assert "nothing" in str(graph)


class Noted(nn.Module):
    """Its code takes numbers out of torch, where no operation tells of them."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.a(x) * (1 if torch.compiler.is_exporting() else 1 + self.a.bias.tolist()[0]))


def test_what_cannot_be_followed_is_tried_on_the_whole_model():
    torch.manual_seed(0)
    model = Noted()
    graph = rk.trace(model, torch.ones(2, 3))
    proof = graph.verify(model, torch.ones(2, 3))
    assert proof.proved == ("a",) and "something else" in proof.on_outputs_only["a"]
    wrong = broken(graph, "a", outgoing=(replace(graph.group("a").outgoing[0], where=half(graph.group("a"))),))
    with pytest.raises(GraphError, match="something reads its units"):
        wrong.verify(model, torch.ones(2, 3))


class NotedExp(Noted):
    """The same, and zero in the parameter of its reader is not zero in the weight."""

    def forward(self, x):
        seen = 1 if torch.compiler.is_exporting() else 1 + self.a.bias.tolist()[0]
        return nn.functional.linear(self.a(x) * seen, self.b.weight.exp())


def test_on_outputs_a_computed_reader_is_no_mistake_of_the_graph():
    torch.manual_seed(0)
    model = NotedExp()
    proof = rk.trace(model, torch.ones(2, 3)).verify(model, torch.ones(2, 3))
    assert "cannot be told" in proof.not_provable["a"] and "a" in proof.on_outputs_only


def half(group):
    where = group.outgoing[0].where
    return replace(where, index=where.index[: group.size // 2])


def test_nothing_but_the_part_is_needed_where_it_can_be_followed():
    model, example = ZOO["gpt"].build(), ZOO["gpt"].example()
    assert rk.trace(model, example).verify(model, example).on_outputs_only == {}
