"""Recurrent layers and cells: unit groups written by hand, and what follows from them, on the models themselves."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.export import at_rest
from rekindle.graph.scaling.solve import prepare, wishes_of
from tests.graph.operation_cases import Case, L, Net, data
from tests.graph.operations_recurrent import CASES, X, cells, last
from tests.graph.test_groups import assert_groups


@pytest.mark.parametrize("found", [pytest.param(c, id=c.name) for c in CASES])
def test_groups(found: Case) -> None:
    model = found.model()
    graph = trace(model, found.example)
    assert_groups(graph, found.groups)
    assert not graph.uncovered and not graph.not_understood
    proved = graph.verify(model, found.example).proved
    assert set(proved) == {group.name for group in graph.groups if not group.leaves}


# Units can change places ----------------------------------------------------------------------------------------------


def output(model: nn.Module, tensors: dict[str, Tensor], example: Any) -> Tensor:
    args, kwargs = as_call(model, example)
    with torch.no_grad(), at_rest(model):
        return functional_call(model, tensors, args, kwargs)


def exchanged(graph: UnitGraph, model: nn.Module, name: str, without: str = "") -> dict[str, Tensor]:
    """All tensors with the units of a group in reverse order, but for the columns of one tensor."""
    tensors, done = dict(model.state_dict()), set()
    group = graph.group(name)
    for side, slots in (("in", group.incoming), ("out", group.outgoing)):
        for slot in slots:
            if (side, slot.tensor) != ("out", without) and (slot.tensor, slot.where.dims) not in done:
                part = slot.where.read(tensors[slot.tensor])
                tensors[slot.tensor] = slot.where.write(tensors[slot.tensor], part.flip(0))
            done.add((slot.tensor, slot.where.dims))
    return tensors


@pytest.mark.parametrize("found", [pytest.param(c, id=c.name) for c in CASES if c.swap])
def test_units_can_change_places(found: Case) -> None:
    model = found.model()
    graph = trace(model, found.example)
    before = output(model, dict(model.state_dict()), found.example)
    for group in graph.groups:
        if group.leaves:
            continue
        after = output(model, exchanged(graph, model, group.name), found.example)
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-6)
        for slot in group.outgoing if group.size > 1 else ():
            wrong = output(model, exchanged(graph, model, group.name, without=slot.tensor), found.example)
            silent = "weight_hh" in slot.tensor and found.name == "a_single_step_of_time"
            assert silent or not torch.allclose(wrong, before, rtol=1e-4, atol=1e-6), slot.tensor


# Weights --------------------------------------------------------------------------------------------------------------


def test_a_weight_for_each_gate() -> None:
    net = Net(last, {"r": nn.LSTM(4, 6, batch_first=True, proj_size=3), "h": L(3, 2)})
    weights = {each.name: each for each in trace(net, X).weights}
    assert {name: each.sizes for name, each in weights.items()} == {
        "r.weight_ih_l0": (4, 6, 4),
        "r.weight_hr_l0": (1, 3, 6),
        "r.weight_hh_l0": (4, 6, 3),
        "h.weight": (1, 2, 3),
    }
    assert [each.role for each in weights.values()] == ["input", "hidden", "hidden", "head"]
    assert [each.fan_in for each in weights.values()] == [4, 6, 3, 3]
    stored = net.r.weight_hh_l0
    assert torch.equal(weights["r.weight_hh_l0"].view.read(stored), torch.stack(stored.chunk(4)))


def test_the_same_without_an_example() -> None:
    net = nn.Sequential(nn.LSTM(4, 6, 2, bidirectional=True))
    net = Net(
        lambda m, x: m.h(m.r(m.c(x.mean(1)).expand(3, -1, -1))[0]), {"c": nn.GRUCell(4, 4), "r": net[0], "h": L(12, 2)}
    )
    traced, scanned = (
        {each.name: (each.sizes, each.view.view, each.view.batch) for each in graph.weights}
        for graph in (trace(net, X), rk.graph.scan.scan(net))
    )
    assert traced == scanned


def test_a_cell_in_a_loop_is_hidden_and_used_once() -> None:
    net = Net(cells, {"r": nn.LSTMCell(4, 6), "h": L(6, 2)})
    found = {each.name: (each.role, each.tied) for each in trace(net, X).weights}
    assert found == {"r.weight_ih": ("input", False), "r.weight_hh": ("hidden", False), "h.weight": ("head", False)}


def test_the_state_of_an_agent_leaves_the_model() -> None:
    net = Net(lambda m, x, h: (m.h(s := m.r(x, h)), s), {"r": nn.GRUCell(4, 6), "h": L(6, 2)})
    graph = trace(net, (X[:, 0], torch.zeros(3, 6)))
    assert graph.group("r.weight_ih").leaves and not graph.uncovered


def test_states_that_are_queries_and_keys() -> None:
    def attend(m: Any, x: Tensor) -> Tensor:
        encoded, state = m.r(x)
        decoded, _ = m.d(x, state)
        return m.h((decoded @ encoded.transpose(1, 2)).softmax(-1) @ encoded)

    parts = {"r": nn.GRU(4, 6, batch_first=True), "d": nn.GRU(4, 6, batch_first=True), "h": L(6, 2)}
    graph = trace(Net(attend, parts), X)
    assert {each.sizes for each in graph.weights} == {(3, 6, 4), (3, 6, 6), (1, 2, 6)}
    assert "score" in {group.kind for group in graph.groups}


@pytest.mark.parametrize("build", [lambda: nn.LSTMCell(4, 24), lambda: None], ids=["cells", "by hand"])
def test_fifty_steps_of_time_take_no_more_than_seconds(build: Any) -> None:
    def by_hand(m: Any, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 24)
        for t in range(x.shape[1]):
            h = (m.i(x[:, t]) + m.s(h)).tanh()
        return m.h(h)

    def loop(m: Any, x: Tensor) -> Tensor:
        state = (x.new_zeros(len(x), 24), x.new_zeros(len(x), 24))
        for step in x.unbind(1):
            state = m.r(step, state)
        return m.h(state[0])

    cell = build()
    net = (
        Net(loop, {"r": cell, "h": L(24, 2)}) if cell else Net(by_hand, {"i": L(4, 24), "s": L(24, 24), "h": L(24, 2)})
    )
    start = time.perf_counter()
    graph = trace(net, data(2, 50, 4))
    assert [group.size for group in graph.groups] == [24, 2]
    assert time.perf_counter() - start < 20  # about one on an idle core


# What is not understood -----------------------------------------------------------------------------------------------


def test_a_weight_without_axes_is_named() -> None:
    class Stale(nn.LSTM):
        def forward(self, x: Tensor) -> Any:
            zeros = x.new_zeros(1, len(x), 6)
            mixed = self.weight_ih_l0.flatten().cumsum(0).view_as(self.weight_ih_l0)
            flat = [mixed, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0]
            return torch._VF.lstm(x, (zeros, zeros), flat, True, 1, 0.0, False, False, True)

    net = Net(last, {"r": Stale(4, 6, batch_first=True), "h": L(6, 2)})
    with pytest.raises(GraphError):
        trace(net, X)
    graph = trace(net, X, strict=False)
    assert "not understood" in graph.uncovered["r.weight_hh_l0"]


# Scale ----------------------------------------------------------------------------------------------------------------


def test_scaled_networks_are_in_proportion() -> None:
    """Every case: multiply all tensors by a random solution of the constraints."""
    for found in CASES:
        model = found.model().double()
        example = pytree.tree_map(lambda x: x.double() if getattr(x, "is_floating_point", bool)() else x, found.example)
        graph = trace(model, example)
        scaling = prepare(graph, wishes_of(graph))
        wanted = torch.randn(len(scaling.wishes), dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.3
        own = dict(model.state_dict())
        new = {n: t * scaling.parts[n].factor(scaling.logs(wanted)[n], t) for n, t in own.items()}
        before, after = output(model, own, example), output(model, new, example)
        constant = (scaling.output @ wanted).exp()
        torch.testing.assert_close(after, constant * before, rtol=1e-9, atol=1e-12, msg=found.name)
        assert not torch.equal(after, before), found.name


def test_a_relu_network_over_time_is_scaled_and_its_recurrence_is_not() -> None:
    net = Net(last, {"r": nn.RNN(4, 6, nonlinearity="relu", batch_first=True), "h": L(6, 2)})
    graph = trace(net, X)
    scaling = prepare(graph, wishes_of(graph))
    wanted = torch.tensor(
        [1.0 if wish.name == "r.weight_ih_l0" else 0.0 for wish in scaling.wishes], dtype=torch.float64
    )
    logs = {name: float(found[0]) for name, found in scaling.logs(wanted).items()}
    assert logs["r.weight_ih_l0"] == logs["r.bias_ih_l0"] == logs["r.bias_hh_l0"] == pytest.approx(1.0)
    assert logs["r.weight_hh_l0"] == logs["h.weight"] == pytest.approx(0.0)
    assert logs["h.bias"] == pytest.approx(1.0)
    assert not any(graph.non_homogeneous.values())


def test_a_relu_network_with_a_given_state_keeps_its_size() -> None:
    net = Net(
        lambda m, x, h: m.h(m.r(x, h)[0]), {"r": nn.RNN(4, 6, nonlinearity="relu", batch_first=True), "h": L(6, 2)}
    )
    graph = trace(net, (X, data(1, 3, 6)))
    scaling = prepare(graph, wishes_of(graph))
    assert not scaling.parts["r.weight_ih_l0"].powers.any() and scaling.parts["h.weight"].powers.any()
