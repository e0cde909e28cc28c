import pytest
import torch
from torch import nn

from rekindle.core.errors import RekindleError
from rekindle.protocols.loop import Budget, accuracy, batches, train


def blobs(count=64):
    labels = torch.arange(count) % 2
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(0)) + 4 * labels[:, None], labels


def linear(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(3, 2)


def test_learns():
    model, (inputs, labels) = linear(), blobs()
    losses = train(model, inputs, labels, Budget(steps=200, batch_size=16, learning_rate=0.05))
    assert len(losses) == 200 and losses[-1] < losses[0]
    assert accuracy(model, inputs, labels) > 0.95


def test_same_seed_same_weights_and_the_global_generator_is_left_alone():
    inputs, labels = blobs()
    before = torch.random.get_rng_state()
    models = [linear() for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        train(model, inputs, labels, Budget(steps=10, batch_size=8), seed=seed)
    assert torch.equal(models[0].weight, models[1].weight)
    assert not torch.equal(models[0].weight, models[2].weight)
    assert torch.equal(before, torch.random.get_rng_state())


def test_matches_the_loop_written_out():
    inputs, labels = blobs()
    model, other = linear(), linear()
    losses = train(model, inputs, labels, Budget(steps=5, batch_size=1000, clip=0.1))
    optimizer = torch.optim.Adam(other.parameters(), lr=1e-3)
    for step in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(other(inputs), labels)
        assert loss.item() == pytest.approx(losses[step], rel=1e-4)  # the whole set, in another order
        loss.backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        optimizer.step()
    torch.testing.assert_close(model.weight, other.weight)


def test_clip_bounds_the_step_of_plain_descent():
    inputs, labels = blobs()
    model = linear()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    train(model, inputs * 100, labels, Budget(steps=1, clip=0.5), optimizer=optimizer)
    moved = torch.cat([(p - s).flatten() for p, s in zip(model.parameters(), start, strict=True)])
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-3)


def test_an_epoch_shows_each_example_once():
    drawn = batches(10, 5, torch.Generator().manual_seed(0))
    epochs = [torch.cat([next(drawn), next(drawn)]) for _ in range(2)]
    assert all(sorted(epoch.tolist()) == list(range(10)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_no_steps_change_nothing():
    model, (inputs, labels) = linear(), blobs()
    assert train(model, inputs, labels, Budget(steps=0)) == []
    assert torch.equal(model.weight, linear().weight)


def test_accuracy_keeps_the_mode_and_counts_all():
    model = nn.Sequential(nn.Dropout(0.9)).train()
    assert accuracy(model, torch.eye(5), torch.arange(5), batch_size=2) == 1.0
    assert model.training


@pytest.mark.parametrize("wrong", [{"steps": -1}, {"batch_size": 0}, {"learning_rate": 0.0}, {"clip": 0.0}])
def test_budget_is_checked_at_the_door(wrong):
    with pytest.raises(RekindleError, match=next(iter(wrong))):
        Budget(**wrong)
