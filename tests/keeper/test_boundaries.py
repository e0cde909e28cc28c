"""The Keeper at a boundary: records, seeds, a changed structure."""

import pytest
import torch
from torch.optim import SGD, Adam

import rekindle as rk
from rekindle.errors import PlanError
from rekindle.testing.aged import hooks
from tests.keeper.keeping import EXAMPLE, batch, kill, network, same, train, values


def test_boundary_records_and_other_seeds_each_time():
    model = network()
    keeper = rk.Keeper(model, Adam(model.parameters()), ["full_reset", "fire:skip=0.*"], example=EXAMPLE)
    drawn = []
    for _ in range(2):
        records = keeper.boundary()
        assert [record.method.key for record in records] == ["full_reset", "fire"]
        drawn.append(model[0].weight.detach().clone())
    assert not torch.equal(*drawn)
    other = network()
    elsewhere = rk.Keeper(other, Adam(other.parameters()), "full_reset", example=EXAMPLE, seed=1)
    elsewhere.boundary()
    assert not any(torch.equal(other[0].weight, weight) for weight in drawn), "seeds 0 and 1 share their draws"


def test_boundaries_go_on_after_a_resume():
    model, again = network(), network()
    keeper = rk.Keeper(model, None, "full_reset")
    keeper.boundary()
    resumed = rk.Keeper(again, None, "full_reset")
    resumed.load_state_dict(keeper.state_dict())
    keeper.boundary()
    resumed.boundary()
    assert same(values(model), values(again))


def test_boundary_with_data_is_not_seen_by_recyclers():
    """The same model, treated before the Keeper comes and at its boundary."""
    data = [(50 * batch(5)[0], batch(5)[1])]
    ends = []
    for inside in (False, True):
        model = network()
        if not inside:
            rk.apply_("dash", model, data=data)
        optimizer = SGD(model.parameters(), 0.1)
        keeper = rk.Keeper(model, optimizer, "redo:period=1,threshold=0.4", example=EXAMPLE)
        if inside:
            keeper.boundary(data, methods="dash")
        train(model, optimizer, keeper, 1)
        ends.append((values(model), keeper.recycled))
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1] and ends[0][1]


def test_boundary_with_data_and_loss():
    model, start = network(), network()
    optimizer = Adam(model.parameters())
    keeper = rk.Keeper(model, optimizer, ["dash", "redo:period=5"], example=EXAMPLE)
    train(model, optimizer, keeper, 1)
    (record,) = keeper.boundary([batch(3)], loss=lambda net, pair: net(pair[0]).square().mean())
    assert any(row.changed for row in record.rows) and not same(values(model), values(start))
    with pytest.raises(PlanError, match="data for dash"):
        keeper.boundary()


def test_a_failing_boundary_changes_nothing():
    model = network()
    optimizer = Adam(model.parameters())
    keeper = rk.Keeper(
        model, optimizer, ["plasticity_injection", "dash", "redo:period=1,threshold=0.4"], example=EXAMPLE
    )
    train(model, optimizer, keeper, 1)
    before, names = values(model), [name for name, _ in model.named_parameters()]
    with pytest.raises(PlanError, match="data for dash"):
        keeper.boundary()
    assert same(values(model), before) and [name for name, _ in model.named_parameters()] == names
    train(model, optimizer, keeper, 1, first=1)
    assert keeper.steps == 2


def first_start(keeper) -> torch.Tensor:
    """Return what l2_init, the first method, takes for the initial value of its first tensor."""
    return next(iter(keeper.state_dict()["running"][0]["start"].values()))


@pytest.mark.parametrize("method", ["plasticity_injection", "layerwise"])
@pytest.mark.parametrize("several", [False, True])
def test_structure_may_change_at_a_boundary(method, several):
    model = network()
    optimizers = [Adam(model[:2].parameters(), 0.01), Adam(model[2:].parameters(), 0.01)]
    if not several:
        optimizers = [Adam(model.parameters(), 0.01)]
    methods = ["l2_init:strength=0.1", "soft_rescale", "redo:period=2,threshold=0.2", method]
    keeper = rk.Keeper(model, optimizers, methods, example=EXAMPLE)
    start = first_start(keeper)
    train(model, optimizers, keeper, 3)
    (record,) = keeper.boundary([batch(0)])
    assert record.surgery and keeper.steps == 3
    assert not model[0].weight.requires_grad or torch.equal(first_start(keeper), start)
    before = values(model)
    kill(model) if model[0].weight.requires_grad else None
    train(model, optimizers, keeper, 3, first=3)
    assert keeper.steps == 6 and not same(values(model), before)
    live = {id(p) for p in model.parameters()}
    assert all(id(p) in live for each in optimizers for p in each.state)
    if method == "plasticity_injection":
        assert keeper.recycled["0"] >= 1
    keeper.close()
    assert not any(hooks(model)) or method == "layerwise"


def test_rebase_outlives_a_change_of_structure():
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    keeper = rk.Keeper(model, optimizer, ["l2_init", "plasticity_injection"], example=EXAMPLE)
    train(model, optimizer, keeper, 2)
    keeper.rebase()
    rebased = model[0].weight.detach().clone()
    train(model, optimizer, keeper, 2, first=2)
    keeper.boundary()
    assert torch.equal(first_start(keeper), rebased)


def test_a_given_reference_outlives_a_change_of_structure():
    model = network()
    reference = network(3)
    keeper = rk.Keeper(
        model, None, ["l2_init", "plasticity_injection"], example=EXAMPLE, reference=reference.state_dict()
    )
    keeper.boundary()
    starts = keeper.state_dict()["running"][0]["start"]
    assert torch.equal(starts["0.weight"], reference[0].weight)
    assert torch.equal(starts["4.new.weight"], model[4].new.weight)
