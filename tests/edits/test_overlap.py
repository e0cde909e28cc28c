"""Two tensors on one memory are noticed before anything is written."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.overlap import overlapping
from rekindle.errors import EditError


def test_weights_that_are_tied_by_memory_alone_are_refused():
    model = nn.ModuleDict({"e": nn.Linear(8, 16, bias=False), "d": nn.Linear(16, 8, bias=False)})
    model["d"].weight = nn.Parameter(model["e"].weight.t())
    before = model["e"].weight.clone()
    with pytest.raises(EditError, match="d.weight and e.weight, which share memory"):
        rk.full_reset_(model)
    assert torch.equal(model["e"].weight, before)


def test_parts_of_one_buffer_are_none():
    buffer = torch.zeros(10)
    assert not list(overlapping({"a": buffer[:5], "b": buffer[5:]}, {}))
    assert list(overlapping({"a": buffer[:6], "b": buffer[5:]}, {})) == [("a", "b")]
    assert not list(overlapping({"a": buffer, "b": buffer}, {}))
    assert not list(overlapping({"a": torch.empty(0), "b": torch.zeros(3, device="meta")}, {}))


def test_what_the_graph_takes_for_tied_and_is_not_is_refused():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.h = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.h.weight = self.e.weight

        def forward(self, x):
            return self.h(self.e(x))

    model, x = Tied(), torch.zeros(1, 3, dtype=torch.long)
    graph = rk.trace(model, x)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert rk.apply_("full_reset", dict(state), graph=graph).changed
    state["h.weight"] = state["h.weight"] + 1
    kept = state["e.weight"].clone()
    with pytest.raises(EditError, match="to which the graph says that it is tied"):
        rk.apply_("full_reset", state, graph=graph)
    assert torch.equal(state["e.weight"], kept)


def test_tensors_without_strides_are_none():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    held = {"a": torch.eye(3).to_sparse(), "b": torch.eye(3).to_sparse_csr(), "c": nested, "d": ("no", "tensor")}
    assert not list(overlapping(held, {}))
