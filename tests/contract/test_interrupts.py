"""An interrupt at any line of a treatment leaves everything as it was, or finished with its record."""

import warnings
from functools import partial

import pytest
import torch

import rekindle as rk
from rekindle.methods.registry import list_methods, method
from rekindle.testing import ZOO
from rekindle.testing.aged import aged
from rekindle.testing.interrupts import check_interrupts
from rekindle.testing.one_shot_checks import supply

ONE_SHOT = [card.key for card in list_methods() if card.kind == "one-shot"]
RECYCLERS = ["redo:period=2,threshold=0.9", "cbp:rate=0.4,maturity=0", "regrama:period=2,threshold=0.9"]
QUICK = ["mlp", "cnn_bn", "vit_fused"]

pytestmark = pytest.mark.filterwarnings("ignore::rekindle.errors.NoEffectWarning")


def treated(spec, member, **given):
    """Return a model with a past, its optimizer and a treatment."""
    model, graph, optimizer = aged(ZOO[member])
    context = {"graph": graph, **supply(method(spec.partition("+")[0]), ZOO[member]), **given}
    return model, optimizer, lambda: rk.apply_(spec, model, optimizer, **context)


@pytest.mark.parametrize("member", QUICK)
@pytest.mark.parametrize("key", ONE_SHOT)
def test_with_undo_all_is_as_it_was(key, member):
    assert check_interrupts(partial(treated, key, member), thorough=member == "mlp") > 200


@pytest.mark.parametrize("member", QUICK)
@pytest.mark.parametrize("key", ONE_SHOT)
def test_without_undo_it_is_as_it_was_or_finished(key, member):
    assert check_interrupts(partial(treated, key, member, undo=False), undo=False, thorough=member == "mlp") > 200


@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize(
    "spec", ["fire+rescale", "shrink_perturb+layerwise", "plasticity_injection+fire:attention=all"]
)
def test_a_chain(spec, undo):
    data = [ZOO["cnn_bn"].example()]
    make = partial(treated, spec, "cnn_bn", undo=undo, data=data)
    assert check_interrupts(make, undo=undo, thorough=False) > 300


class Agent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.target = (torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)) for _ in range(2))

    def forward(self, x):
        return self.online(x)


@pytest.mark.parametrize("undo", [True, False])
def test_with_copies(undo):
    def make():
        torch.manual_seed(0)
        model = Agent()
        optimizer = torch.optim.Adam(model.online.parameters())
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        return model, optimizer, lambda: rk.full_reset_(model, optimizer, copies={"target": "online"}, undo=undo)

    assert check_interrupts(make, undo=undo, thorough=False) > 300


def kept(spec, moment):
    """Return a model with a Keeper after a step of the optimizer, and a moment of the Keeper's as the treatment."""
    model, graph, optimizer = aged(ZOO["cnn_bn"])
    example = ZOO["cnn_bn"].example()
    keeper = rk.Keeper(model, optimizer, spec.split("+"), example=example, graph=graph)
    for number in range(2):
        if number:
            keeper.step()
        optimizer.zero_grad()
        model(example).square().mean().backward()
        optimizer.step()

    def treat():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = moment(keeper)
        return record

    return model, optimizer, treat, keeper


@pytest.mark.parametrize("spec", RECYCLERS)
def test_recycling(spec):
    found = []

    def make():
        model, optimizer, treat, keeper = kept(spec, rk.Keeper.step)
        before = len(keeper.records)

        def told():
            try:
                return treat()
            except KeyboardInterrupt as interrupt:
                if len(keeper.records) > before:  # finished, and the Keeper has the record
                    interrupt.record = keeper.records[-1]
                raise

        found.append(keeper)
        return model, optimizer, told

    assert check_interrupts(make, undo=False, thorough=False) > 200
    assert found[0].records and found[0].recycled


@pytest.mark.parametrize(
    "spec",
    [
        "fire+redo",
        pytest.param("layerwise+redo", marks=pytest.mark.slow),  # traced anew each time
        pytest.param("plasticity_injection+redo", marks=pytest.mark.slow),
    ],
)
def test_a_boundary(spec):
    def make():
        data = [ZOO["cnn_bn"].example()]
        model, optimizer, treat, _ = kept(spec, lambda keeper: keeper.boundary(data))
        return model, optimizer, treat

    assert check_interrupts(make, thorough=False) > 300


def test_after_an_interrupted_boundary_training_goes_on_as_without_it():
    def trained(interrupted):
        model, graph, optimizer = aged(ZOO["cnn_bn"])
        example = ZOO["cnn_bn"].example()
        methods = ["redo:period=2,threshold=0.9", "layerwise"]
        keeper = rk.Keeper(model, optimizer, methods, example=example, graph=graph)
        for number in range(4):
            optimizer.zero_grad()
            model(example + number).square().mean().backward()
            optimizer.step()
            keeper.step()
            if interrupted and number == 1:
                with pytest.raises(RuntimeError, match="stop"):
                    keeper.boundary(failing())
        keeper.close()
        return model.state_dict(), keeper.recycled

    (one, units), (other, same_units) = trained(True), trained(False)
    assert units == same_units and units
    assert all(torch.equal(one[name], other[name]) for name in other)


def failing():
    yield from ()
    raise RuntimeError("stop")


@pytest.mark.interrupts
@pytest.mark.slow
@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("member", ZOO)
@pytest.mark.parametrize("key", ONE_SHOT)
def test_the_whole_zoo(key, member, undo):
    if ZOO[member].requires:
        pytest.importorskip(ZOO[member].requires)
    assert check_interrupts(partial(treated, key, member, undo=undo), undo=undo) > 200


@pytest.mark.slow
@pytest.mark.parametrize("member", QUICK)
def test_tracing_included(member):
    def make():
        model, _, optimizer = aged(ZOO[member])
        return model, optimizer, lambda: rk.fire_(model, optimizer, example=ZOO[member].example())

    assert check_interrupts(make, thorough=False) > 1000
