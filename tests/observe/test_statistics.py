"""When running statistics are stale."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.scan import scan
from rekindle.observe import STALE, stale
from rekindle.testing import ZOO


def net():
    first = (nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU())
    return nn.Sequential(*first, nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2))


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        (["2.weight"], True),
        (["2.bias"], True),
        (["0.weight"], True),  # reaches it one layer on
        (["5.weight"], False),  # comes after it
        (["7.weight", "7.bias"], False),
        (["3.weight"], False),  # its own scale comes after its statistics
        (["2.weight", "3.running_mean", "3.running_var"], False),
        (["2.weight", "3.running_mean"], True),
        (["3.running_mean"], False),
        ([], False),
    ],
)
def test_which_edits_make_them_stale(edited, expected):
    graph = rk.trace(net(), torch.zeros(2, 4))
    assert stale(graph, edited) is expected


def test_without_a_trace_every_edit_does():
    assert stale(scan(net()), ["7.weight"]) and not stale(scan(nn.Linear(3, 2)), ["weight"])


def test_residual_blocks():
    member = ZOO["resnet_basic"]
    graph = rk.trace(member.build(), member.example())
    for weight in graph.weights:
        assert stale(graph, [weight.tensor]) is (weight.role != "head"), weight.name
    assert stale(graph, ["bn.weight"])


def test_the_record_says_so():
    model, example = net(), torch.zeros(2, 4)
    assert STALE in rk.fire_(model, example=example).notices
    assert STALE in rk.shrink_perturb_(model).notices
    assert STALE not in rk.fire_(model, example=example, skip=("0.*", "2.*")).notices
    assert STALE not in rk.full_reset_(model).notices  # its statistics are fresh too
    assert STALE not in rk.fire_(nn.Linear(3, 2), example=torch.zeros(1, 3)).notices
