"""Networks that follow others: copied after a treatment or treated alike, never drawn on their own."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError

X = torch.ones(3, 4)


def q_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


class Policy(nn.Module):
    """As stable-baselines3 has it: the target is outside the forward pass and not in the optimizer."""

    def __init__(self, frozen=False):
        super().__init__()
        torch.manual_seed(0)
        self.q_net, self.q_net_target = q_network(), q_network()
        self.q_net_target.requires_grad_(not frozen)

    def forward(self, x):
        return self.q_net(x)


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("spec", ["full_reset", "fire", "shrink_perturb+fire", "welsr"])
def test_a_target_is_copied_also_if_frozen(spec, frozen):
    policy = Policy(frozen)
    before = [tensor.clone() for tensor in policy.state_dict().values()]
    record = rk.apply_(spec, policy, example=X, copies={"q_net_target": "q_net"})
    assert same(policy.q_net, policy.q_net_target)
    assert any(row.reason == "copy of q_net.0.weight" for row in record.rows)
    told = {row.tensor for row in record.rows} | {skip.tensor for skip in record.skips}
    assert {name for name, _ in policy.named_parameters()} <= told
    record.undo()
    assert all(torch.equal(a, b) for a, b in zip(before, policy.state_dict().values(), strict=True))


@pytest.mark.parametrize("spec", ["full_reset", "shrink_perturb"])
def test_treated_alike_it_has_the_same_draws_on_its_own_values(spec):
    policy, alone = Policy(), Policy()
    target = [tensor.clone() for tensor in policy.q_net_target.state_dict().values()]
    rk.apply_(spec, policy, copies={"q_net_target": ("q_net", "alike")})
    rk.apply_(spec, alone, copies={"q_net_target": "q_net"})
    assert same(policy.q_net, alone.q_net)
    drawn, kept = (spec == "full_reset"), spec == "shrink_perturb"
    assert same(policy.q_net, policy.q_net_target) is drawn
    if kept:  # w' = 0.2 w + 0.8 w0: the difference of the two is 0.2 of what it was
        for new, other, old, first in zip(
            *(policy.q_net_target.state_dict().values(), policy.q_net.state_dict().values()),
            *(target, Policy().q_net.state_dict().values()),
            strict=True,
        ):
            shrink = rk.method(spec).shrink
            torch.testing.assert_close(new - other, (1 - shrink) * (old - first))


def test_without_copies_the_target_was_drawn_on_its_own_which_is_pointed_out():
    policy = Policy()
    optimizer = torch.optim.Adam(policy.q_net.parameters())
    record = rk.full_reset_(policy, optimizer, example=X)
    assert not same(policy.q_net, policy.q_net_target)
    (told,) = [notice for notice in record.notices if "copies=" in notice]
    assert "q_net_target has the names and shapes of q_net and is outside the forward pass" in told
    assert "copies={'q_net_target': 'q_net'}" in told
    assert any("is in no optimizer" in notice for notice in rk.full_reset_(policy, optimizer).notices)
    named = rk.full_reset_(policy, optimizer, example=X, copies={"q_net_target": "q_net"})
    assert not any("copies=" in notice for notice in named.notices)


def test_twins_that_are_both_trained_are_no_copies():
    class Critics(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = q_network(), q_network()

        def forward(self, x):
            return self.one(x), self.two(x)

    model = Critics()
    record = rk.full_reset_(model, torch.optim.Adam(model.parameters()), example=X)
    assert not any("copies=" in notice for notice in record.notices) and not same(model.one, model.two)


def test_blocks_of_a_stack_are_no_copies():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    record = rk.full_reset_(model, torch.optim.Adam(model[0].parameters()), example=X)
    assert not any("copies=" in notice for notice in record.notices)


@pytest.mark.parametrize(
    ("copies", "words"),
    [
        ({"q_target": "q_net"}, "q_target"),
        ({"q_net_target": "q_net.0"}, "a difference at"),
        ({"q_net_target": "q_net", "q_net": "q_net_target"}, "follows no other"),
        ({"q_net_target": "q_net_target"}, "follows no other"),
        ({"q_net_target": ("q_net", "like")}, "copies="),
        ({"q_net_target": 3}, "copies="),
    ],
)
def test_what_makes_no_sense_is_refused(copies, words):
    policy = Policy()
    before = [tensor.clone() for tensor in policy.state_dict().values()]
    for call in (rk.full_reset_, rk.Keeper):
        with pytest.raises(rk.RekindleError, match=words):
            call(policy, copies=copies)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.state_dict().values(), strict=True))


def test_what_changes_the_structure_of_one_cannot_be_followed():
    with pytest.raises(PlanError, match="able to follow"):
        rk.plasticity_injection_(Policy(), example=X, copies={"q_net_target": "q_net"})
    with pytest.raises(PlanError, match="a live model"):
        policy = Policy()
        rk.apply_("full_reset", policy.state_dict(), graph=rk.trace(policy, X), copies={"q_net_target": "q_net"})


def test_the_plan_shows_the_copies():
    plan = rk.plan("full_reset", Policy(), copies={"q_net_target": "q_net"})
    assert "copy of q_net.0.weight" in str(plan) and len(plan.rows) == 8


def test_a_keeper_recopies_at_boundaries():
    policy = Policy(frozen=True)
    optimizer = torch.optim.Adam(policy.q_net.parameters())
    keeper = rk.Keeper(policy, optimizer, ["full_reset"], copies={"q_net_target": "q_net"})
    (record,) = keeper.boundary()
    assert same(policy.q_net, policy.q_net_target) and "copy of" in str(record)
    record.undo()
    assert not same(policy.q_net, policy.q_net_target)


class OfAllKinds(nn.Module):
    """A network and its copy, with numbers of several types that only a copy can be made of."""

    def __init__(self):
        super().__init__()
        for name, value in (("online", 1.0), ("target", 0.0)):
            part = nn.Sequential(nn.Linear(4, 2))
            part.codes = nn.Parameter(torch.full((3, 3), value).to(torch.int8), requires_grad=False)
            part.small = nn.Parameter(torch.full((3,), value).to(torch.float8_e5m2), requires_grad=False)
            part.waves = nn.Parameter(torch.full((3,), complex(value, 2 * value)))
            setattr(self, name, part)

    def forward(self, x):
        return self.online(x)


def test_numbers_of_any_type_are_copied_and_put_back():
    model = OfAllKinds()
    record = rk.apply_("full_reset", model, example=X, copies={"target": "online"})
    for name in ("codes", "small", "waves"):
        ours, theirs = getattr(model.target, name), getattr(model.online, name)
        assert ours.dtype == theirs.dtype and torch.equal(ours.to(torch.complex64), theirs.to(torch.complex64))
    rows = {row.tensor: row for row in record.rows}
    assert rows["target.waves"].norm_after == pytest.approx(15**0.5)  # the imaginary part counts
    assert rows["target.small"].changed == 3 and rows["target.codes"].changed == 9
    record.undo()
    assert float(model.target.waves.abs().sum()) == float(model.target.small.float().sum()) == 0


def test_what_cannot_be_written_one_by_one_is_not_copied():
    model = OfAllKinds()
    for part in (model.online, model.target):
        part.wide = nn.Parameter(torch.rand(3, 1).expand(3, 2), requires_grad=False)
    before = model.online[0].weight.clone()
    with pytest.raises(rk.RekindleError, match="share memory"):
        rk.apply_("full_reset", model, example=X, copies={"target": "online"})
    assert torch.equal(model.online[0].weight, before)
