"""What all hosts share, in a loop that plays the host."""

import weakref

import pytest
import torch
from torch import nn

from rekindle.errors import EditError, KeeperError, NoEffectWarning
from rekindle.integrations.hosted import HostData, HostedKeeper

EXAMPLE = torch.zeros(2, 4)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


def nothing():
    return HostData()


def step(hosted, net, optimizer, number, *, skipped=False):
    draw = torch.Generator().manual_seed(number)
    hosted.before_step()
    net(torch.randn(8, 4, generator=draw)).square().mean().backward()
    if not skipped:
        optimizer.step()
    hosted.after_step(skipped=skipped)
    optimizer.zero_grad()
    return hosted.treat_if_due(nothing)


def played(hosted, net, optimizer, numbers, saved=None):
    hosted.begin(net, optimizer, EXAMPLE, saved)
    return [number for number in numbers if step(hosted, net, optimizer, number)]


def test_a_treatment_comes_once_after_its_step_and_never_after_a_skipped_one():
    net, hosted = network(), HostedKeeper("shrink_perturb", at=[2])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    hosted.begin(net, optimizer, EXAMPLE)
    assert not step(hosted, net, optimizer, 1) and not step(hosted, net, optimizer, 2, skipped=True)
    assert step(hosted, net, optimizer, 3) and not hosted.treat_if_due(nothing)
    assert not step(hosted, net, optimizer, 4, skipped=True), "the step is still the second, and has had its treatment"
    assert (hosted.steps, hosted.boundaries, len(hosted.records)) == (2, 1, 1)


def test_a_training_goes_on_where_it_was_left_and_where_it_was_saved():
    methods = "l2_init:strength=0.5+redo:period=2,threshold=0.9+shrink_perturb"

    def whole():
        net, hosted = network(), HostedKeeper(methods, at=[1, 5])
        optimizer = torch.optim.Adam(net.parameters(), 0.1)
        assert played(hosted, net, optimizer, range(1, 7)) == [1, 5]
        return net

    net, first = network(), HostedKeeper(methods, at=[1, 5])
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    played(first, net, optimizer, range(1, 4))
    saved = first.state_dict()
    first.end()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in net.modules())
    first.begin(net, optimizer, EXAMPLE)
    step(first, net, optimizer, 4)
    assert first.steps == 4, "left"
    again, second = network(), HostedKeeper(methods, at=[1, 5])
    other = torch.optim.Adam(again.parameters(), 0.1)
    played(HostedKeeper(methods, at=[1, 5]), again, other, range(1, 4))
    assert played(second, again, other, range(4, 7), saved) == [5]
    for number in (5, 6):
        step(first, net, optimizer, number)
    for a, b, c in zip(whole().parameters(), net.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


def test_the_penalty_is_added_once_for_each_step():
    net, hosted = network(), HostedKeeper("l2:strength=1.0")
    hosted.begin(net, torch.optim.SGD(net.parameters(), 0.1), EXAMPLE)
    hosted.before_step()
    hosted.before_step()
    torch.testing.assert_close(net[0].weight.grad, net[0].weight.detach())
    hosted.after_step(skipped=True)
    hosted.before_step(scale=2.0)
    torch.testing.assert_close(net[0].weight.grad, 3 * net[0].weight.detach())


def test_another_model_begins_anew_and_the_old_one_is_not_kept_alive():
    net, hosted = network(), HostedKeeper("shrink_perturb", at=[0])
    hosted.begin(net, None, EXAMPLE)
    assert hosted.treat_at_start(nothing) and not hosted.treat_at_start(nothing)
    other = network(1)
    hosted.begin(other, None, EXAMPLE)
    assert hosted.boundaries == 0 and hosted.treat_at_start(nothing)
    gone = weakref.ref(net)
    del net
    assert gone() is None


def test_new_data_counts_where_no_steps_were_given():
    hosted, other = HostedKeeper("shrink_perturb"), HostedKeeper("shrink_perturb", every=3)
    for each in (hosted, other):
        each.begin(network(), None, EXAMPLE)
    assert hosted.treat_for_new_data(nothing) and not other.treat_for_new_data(nothing)


def test_records_hold_no_copy_of_the_model_and_say_so():
    hosted = HostedKeeper("shrink_perturb")
    hosted.begin(network(), None, EXAMPLE)
    hosted.treat(nothing)
    with pytest.raises(EditError, match="load a checkpoint"):
        hosted.records[0].undo()


def test_data_is_asked_for_only_by_methods_that_look_at_it():
    asked = []

    def shown():
        asked.append(1)
        return HostData([(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))])

    for method, times in (("shrink_perturb", 0), ("dash", 1)):
        hosted = HostedKeeper(method)
        hosted.begin(network(), None, EXAMPLE)
        hosted.treat(shown)
        assert len(asked) == times and hosted.records[0].changed


def test_a_method_that_will_change_nothing_says_so_when_training_begins():
    net = network().requires_grad_(False)
    with pytest.warns(NoEffectWarning, match="frozen"):
        HostedKeeper("shrink_perturb").begin(net, None, EXAMPLE)


@pytest.mark.parametrize("other", [HostedKeeper("l2_init"), HostedKeeper("l2", seed=3), HostedKeeper("l2+fire")])
def test_a_state_of_other_methods_is_refused_and_nothing_stays(other):
    net, hosted = network(), HostedKeeper("l2")
    hosted.begin(net, None, EXAMPLE)
    saved = hosted.state_dict()
    hosted.end()
    with pytest.raises(KeeperError, match="(?s)expected: a state saved.*got: the methods L2.*what to do: resume with"):
        other.begin(net, None, EXAMPLE, saved)
    with pytest.raises(KeeperError, match="no methods"):
        other.begin(net, None, EXAMPLE, {"something": "else"})
    assert other.keeper is None


def test_an_optimizer_is_no_method_here():
    with pytest.raises(KeeperError, match="rk.muon"):
        HostedKeeper("muon")


def test_the_learning_rate_drops():
    net, hosted = network(), HostedKeeper("l2_init:strength=0.5", rebase=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    hosted.begin(net, optimizer, EXAMPLE)
    for number, rate in enumerate([0.1, 0.1, 0.095, 0.01, 0.01]):
        optimizer.param_groups[0]["lr"] = rate
        step(hosted, net, optimizer, number)
        assert (float(hosted.keeper.penalty().detach()) == 0.0) is (number == 3)
