"""Where torch.export stops, in words, with file and line."""

import inspect

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph.branching.stops import BRANCHES, NUMBERS, OUTSIDE_TORCH, SHAPES, Stop, stop_of_error, stop_of_shapes
from rekindle.graph.quiet import quiet


class If(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Item(nn.Module):
    def forward(self, x):
        return x if x.sum().item() > 0 else -x


class ToList(nn.Module):
    def forward(self, x):
        return sum(x * v for v in x.tolist() if v)


class Loop(nn.Module):
    def forward(self, x):
        for _ in range(int(x.long().max())):
            x = x + 1
        return x


class Numpy(nn.Module):
    def forward(self, x):
        return x * float(x.numpy().sum())


class Selection(nn.Module):
    def forward(self, x):
        return x[x > 0].sum()


class Unsupported(nn.Module):
    def forward(self, x):
        raise OSError("no such thing")


STOPS = {If: (BRANCHES, 1), Item: (BRANCHES, 1), ToList: (BRANCHES, 1), Loop: (NUMBERS, 1), Numpy: (OUTSIDE_TORCH, 1)}


def stop(model):
    with quiet():
        try:
            return stop_of_shapes(torch.export.export(model, (torch.ones(3),), strict=False))
        except Exception as error:
            return stop_of_error(error, model)


@pytest.mark.parametrize("cls", STOPS, ids=lambda cls: cls.__name__)
def test_kind_module_file_and_line(cls):
    kind, after = STOPS[cls]
    found = stop(nn.Sequential(nn.ReLU(), nn.Sequential(cls())))
    line = inspect.getsourcelines(cls.forward)[1] + after
    assert found == Stop("1.0", kind, __file__, line)
    assert found.why == f"{kind} at test_stops.py:{line}" and found.place == f"{__file__}:{line}"


def test_shapes_that_only_the_data_tells():
    found = stop(nn.Sequential(nn.ReLU(), Selection()))
    assert found == Stop("1", SHAPES, __file__, inspect.getsourcelines(Selection.forward)[1] + 1)
    assert stop(nn.Sequential(nn.ReLU())) is None


def test_other_errors_are_told_as_they_are():
    found = stop(nn.Sequential(Unsupported()))
    assert found.path == "0" and "OSError: no such thing" in found.kind


def test_what_no_module_is_to_blame_for():
    found = stop_of_error(KeyError("x"), nn.ReLU())
    assert found.path == "" and found.why == found.kind and "not known" in found.place


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(3, 2)

    def forward(self, x):
        return self.layer(x[: int(x.long().max())])[0]


class TwoDevices(nn.Module):
    def __init__(self):
        super().__init__()
        self.here, self.there = nn.Linear(3, 3), nn.Linear(3, 3, device="meta")

    def forward(self, x):
        return self.there(self.here(x))


@pytest.mark.parametrize("cls", [Recurrent, TwoDevices], ids=lambda cls: cls.__name__)
def test_the_line_is_never_one_of_ours_or_of_torch(cls):
    with pytest.raises(GraphError) as refused:
        rk.trace(cls(), torch.ones(2, 3))
    assert f"{__file__}:{inspect.getsourcelines(cls.forward)[1] + 1}" in refused.value.got
