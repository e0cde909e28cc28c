"""The Keeper as a guest: what we run ourselves does not disturb what recyclers see of the training."""

import pytest
import torch
from torch import nn

import rekindle as rk
from tests.keeper.keeping import EXAMPLE, batch, network, same, values

DATA = [batch(100), batch(101)]
RECYCLERS = [
    "redo:period=3,threshold=0.4",
    "snr:period=1,firings=2,longest=4",
    "cbp:rate=0.1,maturity=2",
    "regrama:period=3",
]


def audited(model, number):
    rk.audit(model, DATA, probe=number % 4 == 0)


INTERRUPTIONS = {
    "audit": audited,
    "trace": lambda model, number: rk.trace(model, EXAMPLE),
    "plan": lambda model, number: rk.plan("dash+fire", model, example=EXAMPLE, data=DATA).rows,
    "undone treatment": lambda model, number: rk.apply_("fire+dash", model, example=EXAMPLE, data=DATA).undo(),
    "verify": lambda model, number: rk.trace(model, EXAMPLE).verify(model, EXAMPLE),
    "recalibrate": lambda model, number: rk.recalibrate_(model, DATA),
    "evaluation": lambda model, number: model(batch(7)[0]).sum().item() if not torch.is_grad_enabled() else None,
}


def trained(method, between=None):
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(8, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 4))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    keeper = rk.Keeper(model, optimizer, method, example=EXAMPLE)
    for number in range(12):
        inputs, targets = batch(number)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if between is not None and number % 2 and between is not INTERRUPTIONS["undone treatment"]:
            between(model, number)  # in the middle of a step, where statistics are half gathered
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keeper.step()
        if between is not None and number % 3 == 0:
            between(model, number)
    keeper.close()
    return values(model), dict(keeper.recycled)


@pytest.mark.filterwarnings("ignore::rekindle.errors.NoEffectWarning")
@pytest.mark.parametrize("method", RECYCLERS)
@pytest.mark.parametrize("way", INTERRUPTIONS)
def test_training_is_bit_equal_with_something_of_ours_in_between(method, way):
    plain, recycled = trained(method)
    disturbed, also = trained(method, INTERRUPTIONS[way])
    assert same(plain, disturbed) and recycled == also
    assert recycled or method.startswith("regrama")


def test_what_is_paused_is_not_seen():
    def own(model, number):
        with keeper.paused():
            model(batch(number + 50)[0])

    results = []
    for pause in (False, True):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        keeper = rk.Keeper(model, optimizer, "redo:period=2,threshold=0.5", example=EXAMPLE)
        for number in range(6):
            inputs, targets = batch(number)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            if pause:
                own(model, number)
            optimizer.step()
            keeper.step()
        results.append(values(model))
        assert keeper.recycled
    assert same(*results)


def test_a_recycler_that_finds_no_group_is_refused():
    """Everything frozen, or nothing hidden: it would do nothing for ever, in silence."""
    with pytest.raises(rk.RekindleError, match="hidden units that redo can recycle"):
        rk.Keeper(nn.Linear(8, 4), None, "redo", example=EXAMPLE)
    model = network()
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    with pytest.raises(rk.RekindleError, match="is frozen") as refused:
        rk.Keeper(model, None, "cbp", example=EXAMPLE)
    assert "frozen=True" in refused.value.fix
    assert rk.Keeper(model, None, "cbp", example=EXAMPLE, frozen=True)
