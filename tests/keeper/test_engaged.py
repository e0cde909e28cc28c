"""Methods that have begun on a model, replaced as a whole when its structure changes."""

import torch
from torch import nn

import rekindle as rk
from rekindle.keeper.engaged import initial_after
from rekindle.methods.state import StartingWeights
from rekindle.testing.aged import hooks
from tests.keeper.keeping import EXAMPLE, network


def test_initial_weights_after_a_change_of_structure():
    model = network()
    first = StartingWeights(model)
    start = first["0.weight"].clone()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    model.append(nn.Linear(4, 4))
    after = initial_after(model, first)
    assert torch.equal(after["0.weight"], start)  # asked for before
    assert torch.equal(after["5.weight"], model[5].weight)
    given = initial_after(model, {"0.weight": start, "gone": start})
    assert torch.equal(given["0.weight"], start) and "gone" not in given
    assert torch.equal(given["5.weight"], model[5].weight)


def test_a_change_of_structure_puts_another_in_its_place():
    model = network()
    keeper = rk.Keeper(model, None, ["redo", "plasticity_injection"], example=EXAMPLE)
    before = keeper._engaged
    keeper.boundary()
    assert (
        keeper._engaged is not before and "4.frozen" in keeper._engaged.skipped and keeper._engaged.fingerprint.holds()
    )
    keeper.close()
    assert not any(hooks(model))


def test_what_cannot_begin_leaves_no_hook_and_no_mode():
    class Breaks:
        key, kind, card, observes = "redo", "recycler", rk.Redo.card, ("magnitude",)

        def init(self, context):
            raise RuntimeError("stop")

    model = network()
    model[0].eval()
    try:
        rk.Keeper(model, None, [Breaks()], example=EXAMPLE)
    except RuntimeError as error:
        assert str(error) == "stop"
    assert not any(hooks(model)) and torch.is_grad_enabled()
    assert not model[0].training and model[2].training
