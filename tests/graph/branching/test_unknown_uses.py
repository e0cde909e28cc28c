"""Tensors that go around what the trace sees: tied weights, attributes."""

import torch
import torch.nn.functional as F
from torch import nn

import rekindle as rk
from tests.graph.branching.branching_models import ByWeight, Mlp, OnlyCalls


class Gate(nn.Module):
    """Branches; has a reference to a layer outside, which is not registered."""

    def __init__(self, other=None):
        super().__init__()
        self.other, self.own = [other], nn.Linear(6, 6)

    def forward(self, x):
        if x.sum() > 0:
            return self.own(x) if self.other[0] is None else F.linear(x, self.other[0].weight)[:, :6] + self.own(x)
        return x


class Around(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.up, self.down = nn.Linear(6, 7), nn.Linear(7, 6)
        self.gate = Gate(self.up if tied else None)

    def forward(self, x):
        return self.down(torch.relu(self.up(x))) + self.gate(x)


def names(graph):
    return [(group.name, group.kind) for group in graph.groups]


def test_a_weight_that_is_also_used_in_what_is_left_out_has_no_group():
    assert names(rk.trace(Around(False), torch.rand(3, 6), strict=False)) == [("up", "hidden"), ("down", "output")]
    graph = rk.trace(Around(True), torch.rand(3, 6), strict=False)
    assert names(graph) == [("down", "output")]
    assert graph.uncovered["up.weight"].startswith("used in gate: left out")


def test_what_is_used_unseen_keeps_its_scale():
    """A factor on one side and its inverse on the other would be seen where the other branch uses one side alone."""
    opened, called = ByWeight(), OnlyCalls()
    changed = [rk.plan("rescale", model, example=torch.rand(3, 6)).rows for model in (opened, called)]
    assert not changed[0] and {row.tensor for row in changed[1]} >= {"block.up.weight", "block.down.weight"}


def test_a_tied_parameter_that_what_is_left_out_owns():
    class Owner(nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return F.linear(x, self.weight)[:, :6] if x.sum() < 0 else x  # not used on this way

    class Model(Around):
        def __init__(self):
            super().__init__(False)
            self.gate = Owner(self.up.weight)

    assert names(rk.trace(Model(), torch.rand(3, 6), strict=False)) == [("down", "output")]


def test_tensors_that_enter_by_an_attribute_take_all_groups_away():
    class Reads(nn.Module):
        def forward(self, x):
            return x * self.memo.sum() if x.sum() > 0 else x

    class Model(Around):
        def __init__(self):
            super().__init__(False)
            self.gate = Reads()

        def forward(self, x):
            h = torch.relu(self.up(x))
            self.gate.memo = h
            return self.down(h) + self.gate(x)

    model = Model()
    graph = rk.trace(model, torch.rand(3, 6), strict=False)
    assert not graph.groups and not hasattr(model.gate, "memo")
    assert "by an attribute" in graph.uncovered["up.weight"]


def test_tensors_that_leave_a_part_by_an_attribute():
    class Keeps(Mlp):
        def forward(self, x):
            self.last = torch.relu(self.up(x))
            return self.down(self.last)

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Keeps(6, 7)

        def forward(self, x):
            y = self.block(x)
            return y + self.block.last.sum() if x.sum() > 0 else y

    assert not rk.trace(Root(), torch.rand(3, 6), strict=False).groups


def test_tables_that_are_kept_in_attributes_carry_nothing():
    class Table(nn.Module):
        def forward(self, x):
            if not hasattr(self, "kept"):
                self.kept = torch.arange(6) / 6
            return x + self.kept

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.block = Table(), Mlp(6, 7)

        def forward(self, x):
            x = self.block(self.table(self.table(x)))
            return x if x.sum() > -1e6 else -x

    model = Root()
    assert names(rk.trace(model, torch.rand(3, 6), strict=False)) == [("block.up", "hidden")]
    assert not hasattr(model.table, "kept")


def test_a_parameter_that_also_enters_something_unknown_has_no_group():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.down(torch.relu(self.up(x))) + self.up.weight.cumsum(-1).sum()

    graph = rk.trace(Model(), torch.rand(2, 4), strict=False)
    assert names(graph) == [("down", "output")] and "cumsum" in graph.uncovered["up.weight"]


def test_biases_and_norms_have_the_reason_of_the_units_that_they_belong_to():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.norm, self.down = nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)

        def forward(self, x):
            return self.down(self.norm(self.up(x).relu()).cumsum(-1))

    uncovered = rk.trace(Model(), torch.rand(2, 4), strict=False).uncovered
    entered = {name: why for name, why in uncovered.items() if why.startswith("its units enter (model): aten.cumsum")}
    assert entered.keys() == {"up.weight", "up.bias", "norm.weight", "norm.bias"} == uncovered.keys()


def test_a_bias_beside_a_weight_that_has_unknown_uses():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.down(torch.relu(self.up(x))) + self.up.weight.cumsum(-1).sum()

    uncovered = rk.trace(Model(), torch.rand(2, 4), strict=False).uncovered
    assert uncovered["up.bias"].startswith("its units are those of up.weight: enters (model): aten.cumsum")


def test_what_some_operation_reads_is_never_called_unused():
    class Sliced(nn.Module):
        def __init__(self):
            super().__init__()
            self.flat = nn.Parameter(torch.rand(45))
            self.spare = nn.Parameter(torch.rand(2))

        def forward(self, x):
            return F.linear(F.linear(x, self.flat[:30].view(5, 6)).relu(), self.flat[30:].view(3, 5))

    class Lengths(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x, n):
            return self.head(torch.cat([self.layer(x[i : i + 1, : int(n[i])])[0][:, -1] for i in range(len(x))]))

    graph = rk.trace(Sliced(), torch.rand(2, 6), strict=False)
    assert graph.outside == {"spare"} and graph.uncovered["flat"] == "used in a way that gives it no unit axis"
    assert not rk.trace(Lengths(), (torch.rand(2, 5, 6), torch.tensor([3, 5])), strict=False).outside
