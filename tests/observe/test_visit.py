"""A visit leaves no trace."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.observe.visit import batches_of, device_of, size_of, visit
from rekindle.testing.aged import bits, same

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


def modes(model):
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("fails", [False, True])
def test_modes_buffers_and_generator_are_put_back(fails):
    model = net().eval()
    before, state, buffer = bits(model), torch.get_rng_state(), model[1].running_mean
    try:
        with visit(model, 0, "test"):
            assert all(modes(model))
            model(X)
            assert not torch.equal(model[1].running_mean, before["1.running_mean"]), "the copy moves"
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert not any(modes(model)) and model[1].running_mean is buffer
    same(before, bits(model), "a visit changed")
    assert torch.equal(state, torch.get_rng_state())


def test_parts_that_rest_on_purpose_go_on_resting_unless_everything_is_wanted():
    model = net().train()
    model[1].eval()
    for everywhere, expected in ((False, [True, True, False, True]), (True, [True] * 4)):
        with visit(model, 0, "test", everywhere=everywhere):
            assert modes(model) == expected
        assert modes(model) == [True, True, False, True]


def test_draws_depend_on_seed_and_reason():
    model, found = net(), []
    for seed, reason in ((0, "a"), (0, "a"), (1, "a"), (0, "b")):
        with visit(model, seed, reason):
            found.append(model(X).detach())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2]) and not torch.equal(found[0], found[3])


def test_a_buffer_that_two_modules_share_is_shared_inside_too():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    model[1].running_mean = model[0].running_mean
    with visit(model, 0, "test"):
        assert model[1].running_mean is model[0].running_mean


def test_single_samples_and_batch_norm_are_told_and_other_errors_are_not_changed():
    model = net()
    with pytest.raises(PlanError, match="at least two samples"), visit(model, 0, "test"):
        model(X[:1])
    with pytest.raises(ValueError, match="^mine$"), visit(model, 0, "test"):
        raise ValueError("mine")


def test_batches_of_every_form_on_the_device():
    listed = [X, (X, {"a": X, "b": "word"}), {"x": X}]
    found = list(batches_of(iter(listed), torch.device("meta"), "test"))
    assert found[0].is_meta and found[1][1]["a"].is_meta and found[1][1]["b"] == "word" and found[2]["x"].is_meta


@pytest.mark.parametrize("one", [X, (X, X), {"x": X}, 3])
def test_one_batch_instead_of_many_is_told(one):
    with pytest.raises(PlanError, match="data for training: an iterable of batches"):
        next(batches_of(one, None, "training"))


def test_no_batch_is_told():
    with pytest.raises(PlanError, match="at least one batch of data for training"):
        list(batches_of([], None, "training"))


def test_the_device_of_the_first():
    assert device_of([torch.ones(1, device="meta"), X]) == torch.device("meta") and device_of([]) is None


def test_the_size_of_a_batch_is_the_length_of_its_first_tensor():
    assert size_of((torch.zeros(3, 2), torch.zeros(9))) == 3 == size_of({"a": "words", "b": torch.zeros(3)})
    assert size_of([torch.tensor(2.0), torch.zeros(5)]) == 5 and size_of(("no", "tensor")) == 1
