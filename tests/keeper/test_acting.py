"""What is written between two steps is written as a whole, and told of."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.update import Replace
from rekindle.methods.recycling import held_back
from tests.keeper.keeping import EXAMPLE, batch, kill, network


def kept(methods, model=None, **given):
    model = network() if model is None else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return model, optimizer, rk.Keeper(model, optimizer, methods, example=EXAMPLE, **given)


def step(model, optimizer, keeper, number=0):
    inputs, targets = batch(number)
    optimizer.zero_grad()
    (nn.functional.cross_entropy(model(inputs), targets) + keeper.penalty()).backward()
    optimizer.step()
    return keeper.step()


def test_each_event_yields_a_compact_record():
    model, optimizer, keeper = kept("redo:period=2,threshold=0.01")
    kill(model, 3)
    assert step(model, optimizer, keeper) == []
    (record,) = step(model, optimizer, keeper)
    assert record.units["0"] == (3,) and record.step == 2
    assert record.method == "Redo(threshold=0.01, period=2, skip=())"
    assert {"0.weight", "0.bias", "2.weight"} <= set(record.tensors)
    assert "optimizer state (Adam) begins again for the edited elements of" in record.notices[0]
    assert list(keeper.records) == [record] and keeper.recycled["0"] == 1


def test_what_cannot_be_treated_is_listed_once():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.table, self.unused = network(), nn.Parameter(torch.zeros(8)), nn.Linear(3, 3)

        def forward(self, x):
            return self.body(x + self.table)

    model, optimizer, keeper = kept("cbp:rate=0.3,maturity=0", Two())
    first, second = (step(model, optimizer, keeper, number)[0] for number in range(2))
    assert {"body.4", "unused.weight"} <= set(first.skipped) == set(keeper.skipped) and not second.skipped
    assert "the model's output" in keeper.skipped["body.4"]


def test_a_failing_write_is_taken_back_and_not_recorded(monkeypatch):
    model, optimizer, keeper = kept("redo:period=1,threshold=0.9")
    inputs, targets = batch(0)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    before = [p.clone() for p in model.parameters()]
    state = keeper.state("redo")

    def fail(chosen):
        raise RuntimeError("stop")

    monkeypatch.setattr(state, "recycled", fail)
    with pytest.raises(RuntimeError, match="stop"):
        keeper.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not keeper.records and not keeper.recycled and len(optimizer.state) == 6


def narrow() -> nn.Sequential:
    """A network whose second layer reads nothing but the one unit of the first."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 1), nn.ReLU(), nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 4))


def test_units_held_back_keep_age_and_utility():
    model, optimizer, keeper = kept("cbp:rate=1,maturity=2", narrow())
    state = keeper.state("cbp")
    for number in range(2):
        assert step(model, optimizer, keeper, number) == []
    untouched = [model[2].weight.clone(), model[2].bias.clone()]
    (record,) = step(model, optimizer, keeper, 2)
    assert record.units == {"0": (0,)} and record.held_back == {"2": (0, 1)}
    ages = [int(age) for age in state.age]
    assert ages == [0, 3, 3], "a unit that was held back is as old as before"
    assert state.utility[0] == 0 and state.utility[1:].abs().sum() > 0
    assert not torch.equal(model[2].weight, untouched[0]), "its incoming weights were silenced, not drawn"
    assert torch.equal(model[2].weight, torch.zeros_like(model[2].weight))
    (later,) = step(model, optimizer, keeper, 3)
    assert later.units == {"2": (0, 1)} and not later.held_back, "their turn comes"


def test_without_the_rule_they_would_be_cut_off():
    chosen = {"0": torch.tensor([0]), "2": torch.tensor([0, 1])}
    assert held_back(chosen, {"0": torch.tensor([0])}) == {"2": (0, 1)}


def test_a_replacement_goes_on_to_its_end(monkeypatch):
    model, optimizer, keeper = kept("l2")
    step(model, optimizer, keeper)
    update = Replace([model[0].weight], [torch.ones_like(model[0].weight)], clear_moments=True)
    actor = keeper._engaged.actor
    calls = []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return original(*given)

    import rekindle.keeper.acting as acting

    original = acting.begin_again
    monkeypatch.setattr(acting, "begin_again", interrupted)
    with pytest.raises(KeyboardInterrupt):
        actor.update(update)
    assert bool((model[0].weight == 1).all()) and model[0].weight not in optimizer.state


def test_a_chosen_unit_with_an_unknown_optimizer_is_refused_before_any_write():
    model = network()
    optimizer = type("Strange", (torch.optim.Optimizer,), {"step": lambda self, closure=None: self.remember()})(
        model.parameters(), {}
    )
    optimizer.remember = lambda: [optimizer.state[p].update(secret=torch.zeros_like(p)) for p in model.parameters()]
    keeper = rk.Keeper(model, optimizer, "cbp:rate=1,maturity=0", example=EXAMPLE)
    inputs, _ = batch(0)
    model(inputs).sum().backward()
    optimizer.step()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(rk.RekindleError, match="an optimizer whose state is known"):
        keeper.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    keeper.close()
    keeps = rk.Keeper(model, optimizer, "cbp:rate=1,maturity=0", example=EXAMPLE, optimizer_state="keep")
    model(inputs).sum().backward()
    optimizer.step()
    (record,) = keeps.step()
    assert "kept, as asked for" in record.notices[0]
