import pytest
import torch
from torch import nn

from rekindle.errors import SettingsError
from rekindle.training.optimizers import PLAIN, optimizer


def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize("name", [*PLAIN, "muon"])
def test_each_learns_all_parameters(name):
    model = net()
    before = [p.detach().clone() for p in model.parameters()]
    made = optimizer(name, model, torch.zeros(2, 4))
    model(torch.ones(2, 4)).square().sum().backward()
    made.step()
    assert all(not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True) if p.grad.any())


def test_fused_steps_are_those_of_the_plain_optimizer():
    fused, plain = net(), net()
    made = optimizer("adam:lr=0.01,betas=0.8|0.9,weight_decay=0.1", fused, torch.zeros(2, 4))
    other = torch.optim.Adam(plain.parameters(), lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)
    for model, steps in ((fused, made), (plain, other)):
        for _ in range(3):
            steps.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            steps.step()
    for one, two in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_mistakes():
    with pytest.raises(SettingsError, match="lr, momentum"):
        optimizer("sgd:rate=1", net(), torch.zeros(2, 4))
