import dataclasses
import types
from collections import UserDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import rekindle as rk
from rekindle.graph.calls.containers import closed, in_known_containers, map_tensors, opened, tensors_in
from rekindle.graph.calls.inputs import Arguments
from rekindle.graph.export import export

X = torch.arange(8.0).reshape(2, 4)
Named = namedtuple("Named", "x note")


@dataclass(frozen=True)
class Batch:
    x: Tensor
    note: str = "kept"
    more: object = None


@dataclass
class Answer:
    logits: Tensor
    hidden: Tensor


class Net(nn.Module):
    """Takes its input out of whatever it is given, by attribute or by name, and gives a dataclass."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, batch):
        x = batch.x if hasattr(batch, "x") else batch["x"]
        hidden = self.first(x).relu()
        return Answer(self.last(hidden), hidden)


NESTED = [Batch(X, more=UserDict(a=X, b=(1, Batch(X)))), Named(X, "n"), {"c": None}]


def test_open_and_close():
    plain = opened(NESTED)
    assert plain[0] == {"x": X, "note": "kept", "more": {"a": X, "b": (1, {"x": X, "note": "kept", "more": None})}}
    back = closed(plain, NESTED)
    assert type(back[0]) is Batch and type(back[0].more) is UserDict and type(back[0].more["b"][1]) is Batch
    assert back[0].more["b"][1].x is X and back[1] == NESTED[1] and back[2] == {"c": None}
    assert back[0] is not NESTED[0] and back[0].more is not NESTED[0].more


def test_functions_of_tensors():
    double = map_tensors(lambda t: 2 * t, NESTED)
    assert [float(t.sum()) for t in tensors_in(double)] == 4 * [56.0] and len(tensors_in(NESTED)) == 4
    assert all(t is X for t in tensors_in(NESTED)) and double[0].note == "kept"
    fixed = types.MappingProxyType({"x": X})
    assert torch.equal(map_tensors(torch.neg, fixed)["x"], -X)


@pytest.mark.parametrize(
    "batch",
    [Batch(X), Named(X, "n"), {"x": X}, UserDict(x=X), types.SimpleNamespace(x=X)],
    ids=lambda batch: type(batch),
)
def test_a_model_that_takes_and_gives_any_container_is_traced_and_proved(batch):
    model = Net()
    graph = rk.trace(model, (batch,))
    assert [(group.name, group.size) for group in graph.groups] == [("first", 3), ("last", 2)]
    assert set(graph.verify(model, (batch,)).not_provable) == {"first", "last"}  # the model gives both
    assert rk.plan("fire", model, example=(batch,)).edits


def test_nothing_stays_behind():
    model, call = Net(), Arguments((Batch(X),), {})
    with pytest.raises(KeyError), in_known_containers(model, call) as (args, _):
        assert args == ({"x": X, "note": "kept", "more": None},)
        assert set(model(*args)) == {"logits", "hidden"}
        raise KeyError
    assert "forward" not in model.__dict__ and dataclasses.is_dataclass(model(*call.args))
    own = model.__dict__["forward"] = lambda batch: Net.forward(model, batch)  # as accelerate leaves one
    export(model, (Batch(X),))
    assert model.__dict__["forward"] is own


def test_a_hook_may_add_to_the_arguments_of_a_call():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x, scale=None, more=()):
            return self.b(self.a(x).relu() * scale + sum(more))

    model = Scaled()
    model.register_forward_pre_hook(lambda m, args, kw: (args, {**kw, "scale": 2.0, "more": [1.0]}), with_kwargs=True)
    found = [rk.trace(model, example) for example in (torch.ones(2, 3), {"x": torch.ones(2, 3), "more": [0.0, 1.0]})]
    assert [[group.name for group in graph.groups] for graph in found] == [["a", "b"]] * 2
