"""Copies are trained, and the user's own is not."""

import threading

import pytest
import torch
from torch import nn

from rekindle.errors import KeeperError, RekindleError
from rekindle.training.copying import copied


def test_a_model_with_its_optimizer_is_copied_as_one():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    before = model.weight.detach().clone()
    twin, its_optimizer = copied((model, optimizer), RekindleError)
    assert its_optimizer.param_groups[0]["params"][0] is twin.weight
    assert torch.equal(its_optimizer.state[twin.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])
    twin(torch.ones(1, 2)).sum().backward()
    its_optimizer.step()
    assert not torch.equal(twin.weight, before) and torch.equal(model.weight, before)


@pytest.mark.parametrize("kind", [RekindleError, KeeperError])
def test_what_cannot_be_copied_is_named_in_an_error_of_the_callers_kind(kind):
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(kind, match=r"(?s)copy.deepcopy.*got: TypeError: .*lock.*locks") as caught:
        copied(model, kind)
    assert type(caught.value) is kind and isinstance(caught.value.__cause__, TypeError)
