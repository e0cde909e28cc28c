"""What surgery puts into a model: a wrapper and a hook, by their formulas."""

import copy
import pickle

import pytest
import torch
from torch import nn

from rekindle.edits.inserted import BUFFERS, FixedInputNormalization, FixedNormalization, Injected, is_standardized
from rekindle.errors import PlanError


def injected():
    new = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    return Injected(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval(), new, copy.deepcopy(new).eval())


def test_at_first_it_is_the_frozen_part_bit_by_bit_and_then_what_was_learned_is_added():
    module, x = injected().eval(), torch.randn(5, 3)
    assert torch.equal(module(x), module.frozen(x))
    with torch.no_grad():
        module.new[0].bias.add_(0.5)
    torch.testing.assert_close(module(x), module.frozen(x) + module.new(x) - module.twin(x))
    assert not torch.equal(module(x), module.frozen(x))


def test_only_the_new_part_is_in_training_mode():
    module = injected()
    for mode in (True, False, True):
        module.train(mode)
        assert module.training == module.new[1].training == mode
        assert not any(part.training for half in (module.frozen, module.twin) for part in half.modules())
    before = module.frozen[1].running_mean.clone(), module.twin[1].running_mean.clone()
    module(torch.randn(5, 3) + 7)
    assert torch.equal(before[0], module.frozen[1].running_mean)
    assert torch.equal(before[1], module.twin[1].running_mean)
    assert module.new[1].running_mean.any()


class Several(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, *, label):
        return {"out": (self.factor * x, x.long()), "label": label}


def test_of_several_outputs_every_tensor_of_floats_is_the_sum_and_the_rest_is_the_frozen_parts():
    x = torch.tensor([1.0, 2.0])
    found = Injected(Several(1.0), Several(5.0), Several(2.0))(x, label=7)
    assert torch.equal(found["out"][0], (1.0 + 5.0 - 2.0) * x)
    assert torch.equal(found["out"][1], x.long()) and found["label"] == 7


def standardized(mean, std, side="after"):
    module = nn.Linear(3, 2)
    for name, value in zip(BUFFERS[side], (mean, std), strict=True):
        module.register_buffer(name, torch.tensor(value))
    return module


def test_the_hook_standardizes_by_the_buffers_of_now():
    module, x = standardized(0.5, 2.0), torch.randn(4, 3)
    plain = module(x)
    assert not is_standardized(module)
    handle = module.register_forward_hook(FixedNormalization())
    assert is_standardized(module) and not is_standardized(nn.Sequential(module))
    assert not is_standardized(module, "before")
    torch.testing.assert_close(module(x), (plain - 0.5) / 2.0)
    module.rekindle_mean.fill_(-1.0)
    torch.testing.assert_close(module(x), (plain + 1.0) / 2.0)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
    handle.remove()
    assert torch.equal(module(x), plain) and not is_standardized(module)


def test_the_hook_before_a_module_standardizes_what_it_reads():
    module, x = standardized(0.5, 2.0, "before"), torch.randn(4, 3)
    expected = module((x - 0.5) / 2.0)
    module.register_forward_pre_hook(FixedInputNormalization())
    assert is_standardized(module, "before") and not is_standardized(module)
    torch.testing.assert_close(module(x), expected)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
        other.rekindle_input_mean.fill_(-1.0)
        assert not torch.equal(other(x), module(x))


def test_only_the_first_argument_is_standardized_and_there_must_be_one():
    first, second = FixedInputNormalization()(standardized(1.0, 2.0, "before"), (torch.tensor([3.0]), "kept"))
    assert first == 1 and second == "kept"
    for args, got in (((), "no positional argument"), (("word",), "str")):
        with pytest.raises(PlanError, match=got):
            FixedInputNormalization()(standardized(1.0, 2.0, "before"), args)


@pytest.mark.parametrize("kind", [tuple, list])
def test_of_several_outputs_only_the_first_is_standardized(kind):
    first, second = FixedNormalization()(standardized(1.0, 2.0), (), kind([torch.tensor([3.0]), "kept"]))
    assert first == 1 and second == "kept"
