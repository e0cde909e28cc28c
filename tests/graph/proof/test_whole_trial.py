"""The plain proof: right groups pass, and what it does not find is known."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph.modules import tensors_of
from rekindle.graph.proof.whole_trial import WholeTrial, cast, copies_of
from rekindle.testing.zoo import ZOO
from tests.graph.test_verification import without_reader


def trial_of(name: str):
    model, example = ZOO[name].build(), ZOO[name].example()
    graph = rk.trace(model, example)
    return graph, WholeTrial(model, example, graph.gains)


def test_a_right_group_is_seen_and_not_refuted():
    graph, trial = trial_of("resnet_basic")
    group = graph.groups[0]
    assert trial.is_seen(group, 0) and trial.refute(group, [group], 0) is None


def test_a_forgotten_reader_next_to_the_output_is_found():
    graph, trial = trial_of("resnet_basic")
    stream = next(g for g in graph.groups if g.kind == "stream")
    wrong = without_reader(stream, stream.outgoing[-1])
    with pytest.raises(GraphError, match="something reads its units"):
        trial.refute(wrong, [wrong], 0)


def test_a_forgotten_reader_inside_a_stream_is_not_found():
    """Why there is `local_trial`."""
    graph, trial = trial_of("resnet_basic")
    stream = next(g for g in graph.groups if g.kind == "stream")
    wrong = without_reader(stream, stream.outgoing[0])
    assert trial.refute(wrong, [wrong], 0) is None


def test_copies_are_wide_and_copies():
    model = nn.BatchNorm1d(3)
    own = tensors_of(model)
    copies = copies_of(model, wide=True)
    assert copies["weight"].dtype == torch.float64 and copies["num_batches_tracked"].dtype == torch.long
    assert all(copies[name].data_ptr() != tensor.data_ptr() for name, tensor in own.items())
    assert cast((torch.ones(1), 3), wide=False)[0].dtype == torch.float32


class SingleOnly(nn.Module):
    """Refuses float64 in words of its own."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        if x.dtype == torch.float64:
            raise TypeError("float32 expected")
        return self.b(self.a(x).relu())


def test_a_model_that_refuses_float64_is_tried_as_it_is():
    torch.manual_seed(0)
    model = SingleOnly()
    trial = WholeTrial(model, torch.ones(2, 3), {})
    assert not trial.wide and trial.start.isfinite().all()
