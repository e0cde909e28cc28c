"""A chain is planned link by link, and carried out as a whole."""

import math

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.edit import Edit, Edits
from rekindle.errors import EditError, NoEffectWarning

X = torch.ones(3, 4)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.mul_(3)
    return model


def values(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def loss(model, batch):
    return model(batch).square().mean()


GIVEN = {"example": X, "data": [X, 2 * X], "loss": loss}


@pytest.mark.parametrize("first", ["fire", "shrink_perturb", "dirac_reset", "full_reset"])
@pytest.mark.parametrize("second", ["rescale", "rescale:proportional=false", "dash", "layerwise", "fire", "dsd"])
def test_a_chain_is_its_links_one_after_the_other(first, second):
    chained, stepwise = net(), net()
    start = values(chained)
    record = rk.apply_(f"{first}+{second}", chained, **GIVEN)
    steps = [rk.apply_(spec, stepwise, **GIVEN) for spec in (first, second)]
    assert same(values(chained), values(stepwise))
    assert [repr(row) for row in record.rows] == [repr(row) for step in steps for row in step.rows]
    record.undo()
    assert same(start, values(chained))


@pytest.mark.parametrize("second", ["rescale", "layerwise", "dash"])
def test_the_printed_plan_shows_what_will_happen(second):
    model = net()
    plan = rk.plan(f"fire+{second}", model, **GIVEN)
    shown, before = [repr(row) for row in plan.rows], values(net())
    assert same(values(model), before)
    record = rk.apply_(f"fire+{second}", model, **GIVEN)
    assert shown == [repr(row) for row in record.rows]
    assert str(plan).splitlines()[2:] != [] and len(plan.links) == 2


def test_rescale_after_fire_has_the_norms_that_it_promises():
    """Planned on the weights before fire they were at 0.50 and 0.68 of it."""
    model = net()
    rk.apply_("fire+rescale:proportional=false", model, example=X)
    for layer in (model[0], model[2], model[4]):
        fan_in = layer.weight.shape[1]
        expected = math.sqrt(layer.weight.numel()) / math.sqrt(3 * fan_in)  # of the default initializer
        assert float(layer.weight.detach().norm()) == pytest.approx(expected, rel=1e-5)


def test_the_order_matters():
    one, other = net(), net()
    rk.apply_("fire+rescale:proportional=false", one, example=X)
    rk.apply_("rescale:proportional=false+fire:solver=exact", other, example=X)
    singular = torch.linalg.svdvals(other[0].weight)
    assert torch.allclose(singular, torch.full_like(singular, math.sqrt(6 / 4)), atol=1e-3)  # fire had the last word
    ratio = one[0].weight.norm() / other[0].weight.norm()
    assert not math.isclose(float(ratio), 1, rel_tol=0.05)
    assert one[0].weight.norm().item() == pytest.approx(math.sqrt(24) / math.sqrt(12), rel=1e-5)


class Fails:
    """A method whose second edit computes when it is checked, and fails when it is written."""

    key, kind = "fails", "one-shot"

    def __init__(self):
        self.times = 0

    def plan(self, graph, evidence, seed):
        def second(old):
            self.times += 1
            if self.times > 1:
                raise RuntimeError("out of memory")
            return old / 2

        return Edits((Edit("0.weight", lambda old: old / 2, "test"), Edit("2.weight", second, "test")))


def test_without_undo_what_cannot_be_finished_names_what_was_written():
    model = net()
    before = values(model)
    with pytest.raises(EditError, match="out of memory; written were 0.weight") as caught:
        rk.apply_(Fails(), model, undo=False)
    changed = [name for name, tensor in values(model).items() if not torch.equal(tensor, before[name])]
    assert list(caught.value.written) == changed == ["0.weight"]
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_without_undo_a_later_link_that_cannot_be_planned_names_what_was_written():
    model = net()
    with pytest.raises(EditError, match="written were 0.weight, 0.bias"):
        rk.apply_("full_reset+dash", model, undo=False)  # no data
    again = net()
    with pytest.raises(rk.RekindleError, match="data"):
        rk.apply_("full_reset+dash", again)
    assert same(values(again), values(net()))


def test_without_undo_structure_alone_is_taken_back():
    model = net()
    with pytest.raises(rk.RekindleError, match="example= for fire"):
        rk.apply_("plasticity_injection:head=4+fire", model, undo=False)
    assert isinstance(model[4], nn.Linear) and model[4].weight.requires_grad


def test_an_interrupt_after_the_first_write_finishes_and_carries_the_record():
    model, finished = net(), net()
    rk.apply_("full_reset", finished)
    times = []

    class Interrupted:
        key, kind = "full_reset", "one-shot"

        def plan(self, graph, evidence, seed):
            edits = rk.method("full_reset").plan(graph, evidence, seed).edits

            def op(old, edit=edits[2]):
                times.append(1)
                if len(times) == 2:
                    raise KeyboardInterrupt
                return edit.op(old)

            return Edits((*edits[:2], Edit(edits[2].tensor, op, "full_reset"), *edits[3:]))

    with pytest.raises(KeyboardInterrupt) as caught:
        rk.apply_(Interrupted(), model, undo=False)
    assert same(values(model), values(finished))
    assert len(caught.value.record.rows) == 6
    if hasattr(caught.value, "__notes__"):
        assert "finished all the same" in caught.value.__notes__[0]


def test_a_chain_that_changes_nothing_warns():
    with pytest.warns(NoEffectWarning, match="changes nothing"):
        rk.apply_("shrink_perturb:shrink=0+dsd:fraction=0", net())


def test_edits_that_leave_every_value_as_it_is_warn():
    """As fire on the zeros that LoRA begins with."""
    model = nn.Sequential(nn.Linear(4, 3, bias=False))
    nn.init.zeros_(model[0].weight)
    with pytest.warns(NoEffectWarning, match="every value that it edits stays as it is"):
        record = rk.fire_(model, example=X)
    assert record.changed == 0 and len(record.rows) == 1
