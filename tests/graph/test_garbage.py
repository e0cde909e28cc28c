"""A model is gone with its last name, also after it was traced: no collector is needed, and ours is put back."""

import gc
import weakref

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.garbage import no_garbage_left
from rekindle.graph.trace_log import TraceLog
from rekindle.testing.zoo import ZOO


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        h = self.a(x)
        if h.sum() > 0:
            h = h * 2
        return self.b(h)


def read_lazily(graph, model, example):
    return graph.scale_constraints, graph.lipschitz


USES = {
    "nothing": lambda graph, model, example: None,
    "lazy values": read_lazily,
    "verify": lambda graph, model, example: graph.verify(model, example),
    "again": lambda graph, model, example: rk.trace(model, example, strict=False),
}


def held_after(build, example, use):
    """Return references to a model that was traced and let go, and to its tensors."""
    model = build()
    graph = rk.trace(model, example, strict=False)
    use(graph, model, example)
    return [weakref.ref(held) for held in (graph, *model.modules(), *model.parameters(), *model.buffers())]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["mlp", "gpt", "resnet_basic"])
def test_a_traced_model_is_let_go(name, use, no_collector):
    held = held_after(ZOO[name].build, ZOO[name].example(), USES[use])
    assert [ref() for ref in held if ref() is not None] == []


@pytest.mark.parametrize("use", USES)
def test_a_model_that_is_traced_in_pieces_is_let_go(use, no_collector):
    assert [ref() for ref in held_after(Branching, torch.ones(1, 4), USES[use]) if ref() is not None] == []


@pytest.mark.parametrize("lazy", [False, True])
def test_what_was_found_goes_with_the_model(lazy, no_collector):
    def logs():
        return [each for each in gc.get_objects() if type(each) is TraceLog]

    before = len(logs())
    held_after(ZOO["gpt"].build, ZOO["gpt"].example(), USES["lazy values" if lazy else "nothing"])
    assert len(logs()) == before


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), no_garbage_left():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() is enabled
        rk.trace(nn.Linear(2, 2), torch.zeros(1, 2), fresh=True)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
