import torch

from rekindle.lab.data import load
from rekindle.lab.protocols.catalog import protocol


def test_each_task_has_the_same_pixels_in_its_own_order():
    data = load("digits")
    tasks = list(protocol("permuted:tasks=3").stages(data, seed=1))
    plain = data.test.batch(slice(4)).flatten(1)
    shown = [task.test.batch(slice(4)).flatten(1) for task in tasks]
    assert all(torch.equal(one.sort().values, plain.sort().values) for one in shown)
    assert not any(
        torch.equal(one, other) for one, other in [(shown[0], shown[1]), (shown[1], shown[2]), (shown[0], plain)]
    )
    assert torch.equal(tasks[0].train.labels, data.train.labels)


def test_one_order_for_training_and_test_images():
    task = next(protocol("permuted:tasks=1").stages(load("digits"), seed=1))
    order = task.train.change.order
    assert torch.equal(order.sort().values, torch.arange(64)) and torch.equal(order, task.test.change.order)


def test_examples_are_drawn_for_each_task_and_nothing_is_reset():
    first, second = protocol("permuted:tasks=2,images=50").stages(load("digits"), seed=0)
    assert len(first.train) == len(second.train) == 50
    assert not torch.equal(first.train.labels, second.train.labels)
    assert not (first.boundary or second.boundary or second.fresh_optimizer)
    _, told = protocol("permuted:tasks=2,boundary=true").stages(load("digits"), seed=0)
    assert told.boundary and told.fresh_optimizer
