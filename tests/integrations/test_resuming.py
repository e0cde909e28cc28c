"""A state that is resumed must be of this training: methods, structure and what is past."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.integrations.hosted import HostedKeeper
from rekindle.integrations.resuming import refuse_missed, refuse_other, refuse_structure, structure_of
from rekindle.integrations.schedule import Schedule

EXAMPLE = torch.zeros(2, 4)


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def saved(methods="fire", **given):
    net, hosted = network(), HostedKeeper(methods, **given)
    hosted.begin(net, torch.optim.SGD(net.parameters(), 0.1), EXAMPLE)
    for _ in range(3):
        hosted.after_step()
    return hosted.state_dict()


def test_other_methods_and_options_are_refused():
    state, same = saved(at=[9]), {"seed": 0, "rebase": False, "frozen": False}
    refuse_other(state, (rk.Fire(),), same)
    for methods, other in [((rk.Fire(blend=0.5),), {}), ((rk.Fire(),), {"seed": 1}), ((), {})]:
        with pytest.raises(KeeperError, match="what to do: resume with the methods"):
            refuse_other(state, methods, {**same, **other})
    for other in ("rebase", "frozen"):
        with pytest.raises(KeeperError, match=f"(?s)expected.*{other}=True.*got.*{other}=False"):
            refuse_other(state, (rk.Fire(),), {**same, other: True})
    with pytest.raises(KeeperError, match="got: no methods"):
        refuse_other({}, (), same)


def test_a_model_of_other_parameters_is_refused():
    state = saved(at=[9])
    refuse_structure(state, network())
    with pytest.raises(KeeperError, match=r"(?s)0.weight: \[5, 4\] now, \[6, 4\] then"):
        refuse_structure(state, nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
    injected = network()
    rk.plasticity_injection_(injected, example=EXAMPLE)
    with pytest.raises(KeeperError, match="applied to the model again"):
        refuse_structure({**state, "structure": structure_of(injected)}, network())


def test_steps_that_are_past_and_were_not_asked_for_are_refused():
    state = saved(at=[2], every=3)
    for at in ({2}, {3}, {2, 5}, {4}, set()):
        refuse_missed(state, Schedule(frozenset(at)))
    for at in ({0}, {1, 2}):
        with pytest.raises(KeeperError, match="(?s)3 steps are made.*at=.start"):
            refuse_missed(state, Schedule(frozenset(at)))
