"""Facts about modules and tensors: shapes and ties of what is registered, values of what is not."""

import pytest
import torch
from torch import nn

from rekindle.graph.facts import Facts, model, modules
from rekindle.graph.own_run import watching


def facts(item):
    look = Facts()
    model(look, item)
    return look.found


def net():
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.int64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_values_count_of_what_is_not_registered(dtype, shape):
    item = net()
    item.plain = torch.zeros(shape, dtype=dtype)
    before = facts(item)
    assert before == facts(item)
    item.plain = torch.zeros(shape, dtype=dtype)
    assert before == facts(item), "another tensor of the same values"
    if item.plain.numel():
        item.plain.data.view(-1)[-1] = 1
        assert before != facts(item)


def test_values_do_not_count_of_what_is_registered_wherever_else_it_is():
    item = net()
    item.also = [item[2].weight, item[1].running_mean]
    before = facts(item)
    with torch.no_grad():
        item[2].weight.add_(1), item[1].running_mean.add_(1)
    assert before == facts(item)
    item.also[0] = item[0].weight
    assert before != facts(item)


def test_a_large_tensor_is_known_by_which_it_is_and_when_it_was_written():
    item = net()
    item.plain = torch.zeros(modules.LARGE + 1)
    before = facts(item)
    assert before == facts(item)
    item.plain[-1] = 1
    assert before != facts(item)
    before = facts(item)
    item.plain = item.plain.clone()
    assert before != facts(item)


def test_an_attribute_of_a_parameter_is_seen():
    item = net()
    before = facts(item)
    item[0].weight.flag = True
    assert before != facts(item)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_what_old_norms_compute_at_each_call_is_no_constant(norm):
    item = norm(nn.Linear(3, 3))
    item(torch.randn(2, 3))
    before = facts(item)
    with torch.no_grad():
        for parameter in item.parameters():
            parameter.add_(1)
    item(torch.randn(2, 3))
    assert before == facts(item)


def test_hooks_count_in_their_order_but_not_those_that_watch():
    def one(*_):
        """Do nothing."""

    def other(*_):
        """Do nothing."""

    item = net()
    plain = facts(item)
    item[0].register_forward_pre_hook(watching(lambda *_: None))
    assert plain == facts(item)
    first = item[0].register_forward_hook(one)
    item[0].register_forward_hook(other)
    before = facts(item)
    assert before != plain
    first.remove()
    item[0].register_forward_hook(one)
    assert before != facts(item), "another order"
    for kind in ("register_full_backward_hook", "register_full_backward_pre_hook"):
        before = facts(item)
        getattr(item[0], kind)(one)
        assert before != facts(item)


def test_a_module_that_is_held_and_not_registered_counts_with_its_mode():
    item = net()
    item.held = (nn.Sequential(nn.Dropout(0.1)),)
    before = facts(item)
    item.train(not item.training)
    assert before == facts(item)
    item.held[0].eval()
    assert before != facts(item)


def test_lengths_of_packed_sequences_count_and_their_values_do_not():
    def of_example(*lengths):
        look = Facts()
        look.values = False
        look.look(nn.utils.rnn.pack_sequence([torch.randn(length, 2) for length in lengths]))
        return look.found

    assert of_example(3, 2, 2) == of_example(3, 2, 2)
    assert of_example(3, 2, 2) != of_example(3, 3, 1), "as many steps in all"
