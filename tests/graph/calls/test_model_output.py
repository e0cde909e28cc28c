from collections import UserDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from rekindle.graph.calls.model_output import beside_loss, entry, logits_of, loss_alone, loss_in
from rekindle.graph.export import export

LOGITS, LOSS = torch.zeros(2, 3), torch.tensor(0.5)
Out = namedtuple("Out", "loss logits")


@pytest.mark.parametrize(
    "output",
    [
        Out(LOSS, LOGITS),
        SimpleNamespace(loss=LOSS, logits=LOGITS),
        {"loss": LOSS, "logits": LOGITS},
        UserDict(loss=LOSS, logits=LOGITS),
        (LOGITS, LOSS),
        (LOSS, LOGITS),
        [LOGITS, LOSS, None],
    ],
    ids=lambda output: type(output).__name__,
)
def test_logits_and_loss(output):
    assert logits_of(output) is LOGITS and loss_in(output) is LOSS
    assert len(beside_loss(output)) == 1 and beside_loss(output)[0] is LOGITS


@pytest.mark.parametrize("output", [None, {}, (), [None], {"logits": (LOGITS,)}, SimpleNamespace(logits=None), "text"])
def test_outputs_without(output):
    assert logits_of(output) is None is loss_in(output)


def test_what_is_no_loss():
    assert loss_in(LOSS) is None  # the output itself: an answer of one number
    assert loss_in((LOSS,)) is None and loss_in((LOGITS, LOSS, LOSS)) is None  # which of them?
    assert loss_in({"loss": torch.zeros(3)}) is None and loss_in({"loss": torch.tensor(1)}) is None
    assert loss_in((torch.tensor(3), LOGITS)) is None
    assert logits_of(LOGITS) is LOGITS and logits_of((LOGITS, None)) is LOGITS and entry(LOGITS, "data") is None


class Scored(nn.Module):
    def __init__(self, give):
        super().__init__()
        self.fc, self.scale, self.give = nn.Linear(3, 3), nn.Parameter(torch.ones(())), give

    def forward(self, x):
        logits = self.fc(x)
        shifted = torch.zeros_like(x)
        shifted[:, 1:] = x[:, :-1]  # written in place, as language models do
        return self.give(logits + shifted, (self.scale * logits - shifted).square().mean())


def test_nodes_of_the_loss_alone():
    def passed(give):
        program = export(Scored(give), torch.ones(2, 3))
        return {str(node.target) for node in loss_alone(program)}

    both = passed(lambda logits, loss: {"logits": logits, "loss": loss})
    assert {"aten.mul.Tensor", "aten.mean.default", "p_scale"} <= both
    assert not {"aten.linear.default", "aten.copy_.default", "aten.add.Tensor"} & both
    assert passed(lambda logits, loss: (loss, logits)) == both
    assert not passed(lambda logits, loss: logits)
    assert not passed(lambda logits, loss: {"loss": loss})  # all that there is
    assert not passed(lambda logits, loss: loss)
