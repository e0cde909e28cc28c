"""Weights that stay when the parameters behind them are zero: told from silent ones and from forgotten ones."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph.proof.refutation import NEVER_SILENT, OWN_PRODUCT
from tests.graph.operation_cases import L, Net, data
from tests.graph.operation_cases import weight as P
from tests.graph.test_verification import broken, without_reader


def net(forward, **parts):
    return Net(forward, parts)


def reader(weight, **more):
    """A hidden layer, a computed weight that reads it, and another layer behind."""
    return net(lambda s, x: s.b(F.linear(s.a(x).relu(), weight(s)).relu()), a=L(6, 5), w=P(4, 5), b=L(4, 3), **more)


def keys(s, x):
    q, k = s.q(x), F.linear(x, s.w.exp())
    return s.b((q @ k.transpose(1, 2)).softmax(-1) @ s.v(x))


STAY = {
    "softmax": (lambda: reader(lambda s: s.w.softmax(-1)), "a"),
    "exp": (lambda: reader(lambda s: s.w.exp()), "a"),
    "softplus": (lambda: reader(lambda s: F.softplus(s.w)), "a"),
    "one added": (lambda: reader(lambda s: s.w + 1), "a"),
    "buffer added": (lambda: reader(lambda s: s.w + s.n.running_var, n=nn.BatchNorm1d(5)), "a"),
    "gain on softmax": (lambda: reader(lambda s: s.g * s.w.softmax(-1), g=P(4, 1)), "a"),
    "low rank beside exp": (lambda: reader(lambda s: s.w.exp() + s.up @ s.down, up=P(4, 2), down=P(2, 5)), "a"),
}
SILENT = {
    "tanh": lambda s: s.w.tanh(),
    "scaled": lambda s: s.w * s.g * 0.1,
    "standardized": lambda s: (s.w - s.w.mean(1, keepdim=True)) / (s.w.std(1, keepdim=True) + 1e-5),
    "normalized": lambda s: F.normalize(s.w, dim=-1),
    "summed": lambda s: s.w + s.d,
    "low rank": lambda s: s.w + s.up @ s.down,
}


def silent(name):
    return reader(SILENT[name], g=P(5), d=P(4, 5), up=P(4, 2), down=P(2, 5))


@pytest.mark.parametrize("name", STAY)
def test_what_cannot_be_silenced_is_said(name):
    torch.manual_seed(0)
    build, group = STAY[name]
    model = build()
    graph = rk.trace(model, data(4, 6))
    proof = graph.verify(model, data(4, 6))
    assert proof.not_provable[group] == NEVER_SILENT
    assert "w" in proof.proved  # what it writes is read by a plain weight


@pytest.mark.parametrize("name", SILENT)
def test_computed_weights_that_fall_silent_are_proved(name):
    torch.manual_seed(0)
    model = silent(name)
    assert "a" in rk.trace(model, data(4, 6)).verify(model, data(4, 6)).proved


@pytest.mark.parametrize("name", ["tanh", "scaled", "normalized", "summed"])
def test_half_a_computed_reader_is_refuted(name):
    torch.manual_seed(0)
    model = silent(name)
    graph = rk.trace(model, data(4, 6))
    slots = [replace(s, where=replace(s.where, index=s.where.index[:2])) for s in graph.group("a").outgoing]
    with pytest.raises(GraphError, match="something reads its units"):
        broken(graph, "a", outgoing=tuple(slots)).verify(model, data(4, 6))


@pytest.mark.parametrize("name", ["summed", "low rank"])
def test_a_forgotten_part_of_a_sum_is_refuted(name):
    torch.manual_seed(0)
    model = silent(name)
    graph = rk.trace(model, data(4, 6))
    group = graph.group("a")
    for slot in group.outgoing:
        with pytest.raises(GraphError, match="something reads its units"):
            broken(graph, "a", outgoing=without_reader(group, slot).outgoing).verify(model, data(4, 6))


def test_a_weight_standardized_over_more_than_the_group_is_not_silent():
    torch.manual_seed(0)

    def run(s, x):
        weight = s.w - s.w.mean(1, keepdim=True)
        return F.linear(torch.cat([s.a(x).relu(), s.c(x).tanh()], 1), weight)

    model = net(run, a=L(6, 5), c=L(6, 4), w=P(3, 9))
    proof = rk.trace(model, data(4, 6)).verify(model, data(4, 6))
    assert proof.not_provable["a"] == proof.not_provable["c"] == NEVER_SILENT


def test_computed_keys_are_not_silent():
    torch.manual_seed(0)
    model = net(keys, q=L(6, 4), w=P(4, 6), v=L(6, 4), b=L(4, 3))
    proof = rk.trace(model, data(2, 3, 6)).verify(model, data(2, 3, 6))
    assert proof.not_provable["q"] == NEVER_SILENT and "v" in proof.proved


def gram(s, x):
    h = s.a(x).relu()
    return s.b((h @ h.transpose(1, 2)).flatten(1)) + s.c(h[:, 0]) + s.d(h[:, 1])


class FactorizationTop(nn.Module):
    """Recommendation (DLRM): products of embeddings with each other, beside one of them."""

    def __init__(self):
        super().__init__()
        self.dense, self.table, self.top = nn.Linear(6, 4), nn.Embedding(5, 4), nn.Linear(4 + 4, 1)

    def forward(self, x, index):
        dense = self.dense(x).relu()
        z = torch.stack([dense, self.table(index)], 1)
        return self.top(torch.cat([dense, torch.bmm(z, z.transpose(1, 2)).flatten(1)], 1))


def test_units_that_are_multiplied_with_each_other_are_not_provable():
    torch.manual_seed(0)
    model, example = FactorizationTop(), (data(3, 6), torch.tensor([0, 1, 4]))
    assert rk.trace(model, example).verify(model, example).not_provable["dense"] == OWN_PRODUCT
    model = net(gram, a=L(6, 4), b=L(9, 3), c=L(4, 3), d=L(4, 3))
    assert rk.trace(model, data(4, 3, 6)).verify(model, data(4, 3, 6)).not_provable["a"] == OWN_PRODUCT


def test_a_forgotten_reader_beside_what_cannot_be_tried_is_refuted():
    torch.manual_seed(0)
    model = net(gram, a=L(6, 4), b=L(9, 3), c=L(4, 3), d=L(4, 3))
    graph = rk.trace(model, data(4, 3, 6))
    for slot in graph.group("a").outgoing:
        wrong = without_reader(graph.group("a"), slot)
        with pytest.raises(GraphError, match="something reads its units"):
            broken(graph, "a", outgoing=wrong.outgoing).verify(model, data(4, 3, 6))
    model = net(
        lambda s, x: (lambda h: F.linear(h, s.w.exp()) + s.b(h))(s.a(x).relu()), a=L(6, 5), w=P(3, 5), b=L(5, 3)
    )
    graph = rk.trace(model, data(4, 6))
    kept = tuple(slot for slot in graph.group("a").outgoing if slot.tensor == "w")
    with pytest.raises(GraphError, match="something reads its units"):
        broken(graph, "a", outgoing=kept).verify(model, data(4, 6))
