"""Optimizer state by what it means: every known optimizer goes on after a treatment beside a fresh one."""

import math

import pytest
import torch
from torch import nn, optim

import rekindle as rk
from rekindle.edits.edit import Edit, Edits
from rekindle.edits.optimizer_state import KNOWN, as_sequence, inner, meaning_of
from rekindle.errors import EditError, PlanError
from rekindle.graph.regions import UnitIndex

PAST, AFTER = 2000, 300  # steps before the treatment, and steps that are compared


class Plain:
    """A method from a list of edits."""

    key, kind = "plain", "one-shot"

    def __init__(self, *edits):
        self.edits = edits

    def plan(self, graph, evidence, seed):
        return Edits(tuple(self.edits))


def schedule_free(name):
    def make(parameters):
        made = getattr(pytest.importorskip("schedulefree"), name)(parameters, lr=1e-3)
        made.train()
        return made

    return make


MAKE = {
    "SGD": lambda p: optim.SGD(p, lr=1e-3, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=1e-3),
    "Adam amsgrad": lambda p: optim.Adam(p, lr=1e-3, amsgrad=True),
    "Adam fused": lambda p: optim.Adam(p, lr=1e-3, fused=True),
    "Adam foreach": lambda p: optim.Adam(p, lr=1e-3, foreach=True),
    "AdamW": lambda p: optim.AdamW(p, lr=1e-3, weight_decay=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=1e-3),
    "RAdam": lambda p: optim.RAdam(p, lr=1e-3),
    "Adamax": lambda p: optim.Adamax(p, lr=1e-3),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=1e-3, initial_accumulator_value=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, lr=1.0),
    "Rprop": lambda p: optim.Rprop(p, lr=1e-3),
    "ASGD": lambda p: optim.ASGD(p, lr=1e-3, t0=10),
    "Lion": lambda p: pytest.importorskip("lion_pytorch").Lion(p, lr=1e-3),
    "AdamWScheduleFree": schedule_free("AdamWScheduleFree"),
    "RAdamScheduleFree": schedule_free("RAdamScheduleFree"),
    "SGDScheduleFree": schedule_free("SGDScheduleFree"),
}
MIXES = {
    "Adafactor": lambda p: optim.Adafactor(p, lr=1e-2),
    "Muon": lambda p: optim.Muon(p, lr=1e-3),
}


def model_of(value=0.0):
    model = nn.Module()
    model.weight = nn.Parameter(torch.full((6, 4), value))
    return model


def gradients(steps):
    """Return a fixed sequence of gradients: entries of very different sizes, with noise, all of one sign mostly."""
    noise = torch.randn(steps, 6, 4, generator=torch.Generator().manual_seed(1))
    return (1.0 + 0.3 * noise) * torch.logspace(-2, 1, 24).reshape(6, 4)


def go(model, optimizer, sequence):
    """Train on given gradients; return the weights after each step."""
    path = []
    for gradient in sequence:
        model.weight.grad = gradient.clone()
        optimizer.step()
        path.append(model.weight.detach().clone())
    return torch.stack(path)


ROWS = UnitIndex((6, 4), (0,), torch.tensor([[1], [4]]))
RENEWED = [1, 4]
OTHERS = [0, 2, 3, 5]


def updates(path, start):
    return torch.diff(torch.cat([start[None], path]), dim=0)


@pytest.mark.parametrize("name", MAKE | MIXES)
def test_edited_whole_it_goes_on_as_a_fresh_one(name):
    model, fresh = model_of(), model_of(0.5)
    make = (MAKE | MIXES)[name]
    optimizer = make(model.parameters())
    go(model, optimizer, gradients(200))
    record = rk.apply_(Plain(Edit("weight", lambda old: torch.full_like(old, 0.5), "test")), model, optimizer)
    assert any("begins again for weight" in told for told in record.notices)
    again = go(model, optimizer, -gradients(30))
    beside = go(fresh, make(fresh.parameters()), -gradients(30))
    torch.testing.assert_close(again, beside, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", MAKE)
def test_edited_in_part_renewed_entries_go_on_as_fresh_ones_and_others_as_if_nothing_had_happened(name):
    model, undisturbed, fresh = model_of(), model_of(), model_of(0.5)
    optimizer, other = MAKE[name](model.parameters()), MAKE[name](undisturbed.parameters())
    go(model, optimizer, gradients(PAST))
    go(undisturbed, other, gradients(PAST))
    start = model.weight.detach().clone()
    start[RENEWED] = 0.5
    record = rk.apply_(Plain(Edit("weight", lambda old: torch.full_like(old, 0.5), "test", ROWS)), model, optimizer)
    assert torch.equal(model.weight, start)
    assert any("begins again for the edited elements of weight" in told for told in record.notices)
    sequence = -gradients(AFTER)
    path = go(model, optimizer, sequence)
    assert torch.equal(path[:, OTHERS], go(undisturbed, other, sequence)[:, OTHERS])
    beside = updates(go(fresh, MAKE[name](fresh.parameters()), sequence), torch.full((6, 4), 0.5))[:, RENEWED]
    ratio = updates(path, start)[:, RENEWED].abs().sum((1, 2)) / beside.abs().sum((1, 2)).clamp_min(1e-12)
    moves = beside.abs().sum((1, 2)) > 1e-6  # RAdam waits for a few steps
    if "ScheduleFree" not in name:  # see the test below
        assert ratio[moves].min() > 0.5 and ratio[moves].max() < 2


def test_without_the_correction_adam_would_make_steps_of_six_times_the_rate():
    """What the test above is about: moments at zero under a step counter that goes on."""
    model = model_of()
    optimizer = MAKE["Adam"](model.parameters())
    go(model, optimizer, gradients(1))
    optimizer.state[model.weight]["step"].fill_(3000)
    for key in ("exp_avg", "exp_avg_sq"):
        optimizer.state[model.weight][key].zero_()
    start = model.weight.detach().clone()
    steps = updates(go(model, optimizer, torch.ones(20, 6, 4)), start).abs().amax((1, 2)) / 1e-3
    assert steps[0] == pytest.approx(3.1, abs=0.1) and steps.max() == pytest.approx(6.4, abs=0.1)


@pytest.mark.parametrize("name", ["AdamWScheduleFree", "RAdamScheduleFree"])
def test_schedule_free_makes_no_large_steps_in_part(name):
    """Its average goes on with the group's counter, so that only the size of a step can be a fresh one's."""
    model, fresh = model_of(), model_of(0.5)
    optimizer, beside = MAKE[name](model.parameters()), MAKE[name](fresh.parameters())
    go(model, optimizer, gradients(PAST))
    rk.apply_(Plain(Edit("weight", lambda old: torch.full_like(old, 0.5), "test", ROWS)), model, optimizer)
    assert torch.equal(optimizer.state[model.weight]["z"][RENEWED], torch.full((2, 4), 0.5))
    for number, gradient in enumerate(-gradients(50)):
        moved = []
        for net, each in ((model, optimizer), (fresh, beside)):
            before = each.state[net.weight].get("z", net.weight.detach()).clone()
            go(net, each, gradient[None])
            moved.append((each.state[net.weight]["z"] - before)[RENEWED].abs().sum())
        assert moved[1] < 1e-9 or 0.5 < moved[0] / moved[1] < 2, f"step {number}"


def test_what_is_no_moment_is_not_zeroed():
    rprop, asgd = model_of(), model_of()
    one, two = optim.Rprop(rprop.parameters(), lr=1e-3), optim.ASGD(asgd.parameters(), t0=5)
    go(rprop, one, gradients(50))
    go(asgd, two, gradients(50))
    edit = Edit("weight", lambda old: torch.full_like(old, 0.5), "test", ROWS)
    rk.apply_(Plain(edit), rprop, one)
    rk.apply_(Plain(edit), asgd, two)
    assert torch.equal(one.state[rprop.weight]["step_size"][RENEWED], torch.full((2, 4), 1e-3))
    assert (one.state[rprop.weight]["step_size"][OTHERS] > 1e-3).all()
    assert torch.equal(two.state[asgd.weight]["ax"][RENEWED], torch.full((2, 4), 0.5))


@pytest.mark.parametrize("name", MIXES)
def test_optimizers_that_mix_entries_begin_again_for_the_whole_tensor_and_say_so(name):
    model = model_of()
    optimizer = MIXES[name](model.parameters())
    go(model, optimizer, gradients(20))
    record = rk.apply_(Plain(Edit("weight", lambda old: old * 2, "test", ROWS)), model, optimizer)
    assert model.weight not in optimizer.state
    assert any(f"({name}) begins again for weight" in told for told in record.notices)
    record.undo()
    assert optimizer.state[model.weight]


def test_codes_of_8_bits_are_not_zeroed_but_begin_again():
    class AdamW8bit(optim.Optimizer):
        """What bitsandbytes has: codes in the parameter's shape, where zero is the lowest code, not nothing."""

        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 1e-3})

        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p].setdefault("state1", torch.full(p.shape, 127, dtype=torch.uint8))
                self.state[p].setdefault("absmax1", torch.ones(1))

    model = model_of()
    optimizer = AdamW8bit(model.parameters())
    go(model, optimizer, gradients(2))
    codes = optimizer.state[model.weight]["state1"]
    rk.apply_(Plain(Edit("weight", lambda old: old * 2, "test", ROWS)), model, optimizer)
    assert (codes == 127).all() and model.weight not in optimizer.state


def test_lbfgs_begins_again_for_everything():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(8, 3)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    record = rk.apply_(Plain(Edit("2.bias", lambda old: old + 1, "test")), model, optimizer)
    assert not optimizer.state and any("for all tensors, also those not edited" in told for told in record.notices)
    assert math.isfinite(optimizer.step(closure).item())


class Own(optim.Optimizer):
    """An optimizer that nobody knows, with state that it cannot do without."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            self.state[p].setdefault("secret", torch.ones_like(p))


class Renamed(optim.Adam):
    """An Adam with something more in its state."""

    def step(self, closure=None):
        super().step()
        for p in self.param_groups[0]["params"]:
            self.state[p]["slow"] = torch.ones_like(p)


@pytest.mark.parametrize("make", [Own, Renamed])
def test_state_that_is_not_known_raises_before_any_write_unless_told_what_to_do(make):
    model = model_of(1.0)
    optimizer = make(model.parameters())
    edit = Plain(Edit("weight", lambda old: old * 2, "test"))
    rk.apply_(edit, model, optimizer)  # there is no state yet that could be wrong
    go(model, optimizer, gradients(2))
    before, held = model.weight.detach().clone(), optimizer.state[model.weight]
    with pytest.raises(EditError, match="(?s)secret|slow.*optimizer_state="):
        rk.apply_(edit, model, optimizer)
    assert torch.equal(model.weight, before) and optimizer.state[model.weight] is held
    record = rk.apply_(edit, model, optimizer, optimizer_state="keep")
    assert torch.equal(model.weight, 2 * before) and optimizer.state[model.weight] is held
    assert any("kept, as asked for" in told for told in record.notices)
    record.undo()
    rk.apply_(edit, model, optimizer, optimizer_state="drop")
    assert model.weight not in optimizer.state


def test_an_optimizer_of_another_model_is_refused():
    model, other = model_of(), model_of()
    with pytest.raises(PlanError, match="holds none of them"):
        rk.apply_(Plain(Edit("weight", lambda old: old + 1, "test")), model, optim.SGD(other.parameters(), lr=0.1))
    assert not model.weight.any()


def test_several_optimizers_each_have_their_own_state():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    pair = [optim.Adam(model[0].parameters()), optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)]
    model(torch.ones(2, 3)).sum().backward()
    for each in pair:
        each.step()
    record = rk.apply_("full_reset", model, pair)
    assert not pair[0].state and not pair[1].state
    record.undo()
    assert len(pair[0].state) == len(pair[1].state) == 2


def test_what_a_trainer_puts_around_an_optimizer_is_looked_through():
    class Accelerated(optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        state = property(lambda self: self.optimizer.state)
        param_groups = property(lambda self: self.optimizer.param_groups)

    model = model_of()
    adam = optim.Adam(model.parameters())
    go(model, adam, gradients(2))
    around = Accelerated(adam)
    assert inner(around) is adam and as_sequence(around) == (around,) and as_sequence(None) == ()
    rk.apply_(Plain(Edit("weight", lambda old: old + 1, "test")), model, around)
    assert model.weight not in adam.state


def test_every_known_kind_is_tried_here():
    assert {name.partition(" ")[0] for name in MAKE | MIXES} | {"LBFGS"} == set(KNOWN)
    assert meaning_of(Own([nn.Parameter(torch.zeros(1))]), {}) is None


@pytest.mark.parametrize("spec", ["fire", "head_reset", "plasticity_injection"])
@pytest.mark.parametrize("name", ["SGD fused", "Adagrad"])
def test_optimizers_that_do_not_make_state_go_on_after_a_part_was_treated(name, spec):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.ones(5, 4)
    make = {"SGD fused": lambda p: optim.SGD(p, 0.1, momentum=0.9, fused=True), "Adagrad": optim.Adagrad}[name]
    optimizer = make(model.parameters())
    for number in range(4):
        if number == 2:
            rk.apply_(spec, model, optimizer, example=x)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_lbfgs_forgets_everything_also_when_asked_to_drop():
    model, x = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), torch.randn(8, 4)
    optimizer = optim.LBFGS(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    record = rk.head_reset_(model, optimizer, example=x, optimizer_state="drop")
    assert not optimizer.state and "all tensors" in record.notices[0]


@pytest.mark.parametrize("name", ["AdamWScheduleFree", "SGDScheduleFree"])
def test_per_step_methods_reach_the_weights_that_are_used(name):
    pytest.importorskip("schedulefree")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(32, 8)
    optimizer = MAKE[name](model.parameters())
    keeper = rk.Keeper(model, optimizer, "weight_clip:kappa=0.5", example=x)
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    for _ in range(100):
        optimizer.zero_grad()
        (model(x) - 10 * x[:, :4]).square().mean().backward()
        optimizer.step()
        keeper.step()
    bound = 0.5 / math.sqrt(8)
    optimizer.eval()
    assert float(model[0].weight.detach().abs().max()) <= bound * (1 + 1e-5)
