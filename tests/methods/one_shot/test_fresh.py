"""Where fresh values come from."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.graph.scan import scan
from rekindle.methods.one_shot._fresh import fresh_values
from rekindle.observe import gather


class Odd(nn.Module):
    """A layer, and a parameter that nobody knows how to draw."""

    def __init__(self):
        super().__init__()
        self.fc, self.odd = nn.Linear(3, 2), nn.Parameter(torch.full((2, 2), 5.0))


GRAPH = scan(Odd())
START = {name: torch.full_like(tensor, 9.0) for name, tensor in Odd().state_dict().items()}


def values(name, reference=None, fresh="init", seed=0, key="test"):
    found = fresh_values(GRAPH, gather(reference, 0), name, GRAPH.parameters[name], seed, key, fresh)
    return None if found is None else found()


def test_by_the_own_initializer_unless_the_reference_is_asked_for():
    drawn = values("fc.weight")
    assert torch.equal(drawn, GRAPH.fresh("fc.weight", (2, 3), 0, "test")) and drawn.abs().max() <= 3**-0.5
    assert torch.equal(values("fc.weight", START), drawn)
    assert (values("fc.weight", START, "reference") == 9).all()
    assert torch.equal(values("fc.weight", None, "reference"), drawn), "without a reference it is drawn"


def test_seed_and_method_decide():
    assert torch.equal(values("fc.weight"), values("fc.weight"))
    assert not torch.equal(values("fc.weight"), values("fc.weight", seed=1))
    assert not torch.equal(values("fc.weight"), values("fc.weight", key="other"))


def test_without_an_initializer_the_reference_or_nobody():
    assert values("odd") is None and (values("odd", START) == 9).all()
    with pytest.raises(PlanError, match="none of that name"):
        values("odd", {"fc.weight": START["fc.weight"]})


def test_nothing_is_drawn_before_it_is_asked_for(monkeypatch):
    draw = fresh_values(GRAPH, gather(None, 0), "fc.weight", (2, 3), 0, "test")
    monkeypatch.setattr(type(GRAPH), "fresh", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        draw()
