"""Seeds that are trained as one: every seed ends where it ends alone."""

import copy

import pytest
import torch

from rekindle.errors import SettingsError
from rekindle.lab.models.mlp import MLP
from rekindle.lab.runs.stacked_training import Stack, Stacked, evaluate_stacked, losses_of, train_stacked
from rekindle.training.evaluation import TrainingError, evaluate
from rekindle.training.examples import Examples
from rekindle.training.loop import train
from rekindle.training.progress import StageProgress, TrainConfig
from rekindle.training.schedules import Decay
from rekindle.training.stage import Stage

SEEDS = 4


def examples(seed, count):
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=random)
    inputs = torch.randint(256, (count, 1, 2, 3), generator=random, dtype=torch.uint8)
    inputs.view(count, 6)[torch.arange(count), labels] = 255  # something to learn
    return Examples(inputs, labels)


def stages(count=24, **given):
    given = {"epochs": 6, **given}
    return [Stage("all", examples(seed, count), examples(seed + 100, 40), **given) for seed in range(SEEDS)]


def models(bias=True):
    torch.manual_seed(0)
    return [MLP([6, 5, 4, 3], bias=bias) for _ in range(SEEDS)]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-2)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-2)


def train_both(config, parts, make, nets):
    """Return networks, rows and optimizers' places of both ways: one by one, and stacked."""
    alone, rows_alone = [copy.deepcopy(net) for net in nets], []
    for seed, (net, stage) in enumerate(zip(alone, parts, strict=True)):
        rows_alone.append([])
        train(net, make(net), stage, config, StageProgress(), seed=seed, after_epoch=rows_alone[-1].append)
    stack, rows = Stack(nets), []
    train_stacked(stack, make(stack), parts, config, StageProgress(), range(SEEDS), rows.append)
    stack.give(nets)
    return alone, nets, rows_alone, [list(own) for own in zip(*rows, strict=True)]


@pytest.mark.parametrize("make", [sgd, adam])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("config", "given"),
    [
        (TrainConfig(), {}),  # full batch
        (TrainConfig(batch_size=7, evaluate_each=2), {}),
        (TrainConfig(batch_size=7, warmup=0.5, schedule=Decay(by=0.5)), {"epochs": None, "steps": 11}),
        (TrainConfig(batch_size=8), {"learning_rate": 0.01, "weight_decay": 0.3}),
    ],
)
def test_every_seed_ends_where_it_ends_alone(make, bias, config, given):
    alone, together, rows_alone, rows = train_both(config, stages(**given), make, models(bias))
    before = models(bias)
    for one, other, start in zip(alone, together, before, strict=True):
        for a, b, c in zip(one.parameters(), other.parameters(), start.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5) and not torch.allclose(a, c, atol=1e-3)
    for one, other in zip(rows_alone, rows, strict=True):
        told = [row for row in one if row is not None]
        assert len(told) == len(other) > 0
        for a, b in zip(told, other, strict=True):
            assert a.keys() == b.keys() and a["epoch"] == b["epoch"] and a["step"] == b["step"]
            assert a["accuracy"] == b["accuracy"] and a["rate_factor"] == b["rate_factor"]
            assert b["loss"] == pytest.approx(a["loss"], abs=1e-5)
            assert b["train_loss"] == pytest.approx(a["train_loss"], abs=1e-5)


def test_seeds_do_not_touch_each_other():
    """The gradient of one seed's loss is zero in the weights of all others."""
    stack = Stack(models())
    losses_of(stack, Stacked.of([stage.train for stage in stages()]))[1].backward()
    for value in stack.parameters():
        assert value.grad[1].abs().sum() > 0
        assert not value.grad[[0, 2, 3]].any()


def test_take_and_give():
    nets, others = models(), [MLP([6, 5, 4, 3]) for _ in range(SEEDS)]
    stack = Stack(others)
    stack.take(nets)
    stack.give(others)
    for one, other in zip(nets, others, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
        stack.stacked["layers_0_weight"].detach().zero_()
        assert other.layers[0].weight.any()  # a copy, not a view


def test_evaluation_in_more_than_one_part(monkeypatch):
    monkeypatch.setattr("rekindle.lab.runs.stacked_training.CHUNK", 7)
    nets, parts = models(), [stage.test for stage in stages()]
    accuracies, losses = evaluate_stacked(Stack(nets), Stacked.of(parts))
    for net, part, accuracy, loss in zip(nets, parts, accuracies, losses, strict=True):
        assert (accuracy, loss) == (pytest.approx(evaluate(net, part)[0]), pytest.approx(evaluate(net, part)[1]))
    assert len(set(losses)) == SEEDS


def test_examples_of_each_seed_in_its_own_order():
    inputs = torch.arange(6.0).view(2, 3, 1)
    found = Stacked(inputs, inputs[..., 0].long()).at(torch.tensor([[2, 0], [1, 1]]))
    assert found.inputs.tolist() == [[[2.0], [0.0]], [[4.0], [4.0]]]
    assert found.labels.tolist() == [[2, 0], [4, 4]]


def test_a_seed_whose_loss_is_not_finite_is_named():
    nets = models()
    with torch.no_grad():
        nets[2].layers[0].weight.fill_(torch.inf)
    stack = Stack(nets)
    with pytest.raises(TrainingError, match="number 2 of 4"):
        train_stacked(stack, sgd(stack), stages(), TrainConfig(), StageProgress(), range(SEEDS), lambda rows: None)


@pytest.mark.parametrize("other", [MLP([6, 4, 4, 3]), MLP([6, 5, 4, 3], bias=False), torch.nn.Linear(6, 3)])
def test_networks_that_differ_are_refused(other):
    with pytest.raises(SettingsError, match="MLPs of the same sizes"):
        Stack([*models(), other])
