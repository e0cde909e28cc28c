"""One pass over data, against running the model by hand."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.observe.features import pass_over, resting
from rekindle.testing.aged import bits, hooks, same


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))


DATA = [(torch.randn(5, 3, generator=torch.Generator().manual_seed(n)), torch.zeros(5).long()) for n in range(3)]


def test_listeners_get_what_modules_take_in_and_finish_what_comes_out():
    model, seen, outputs = net().train(), [], []
    state, before = torch.get_rng_state(), bits(model)
    count = pass_over(model, DATA, {("4", "input"): seen.append}, lambda batch, output: outputs.append((batch, output)))
    assert count == 3 and model.training and not any(hooks(model))
    assert torch.equal(state, torch.get_rng_state())
    same(before, bits(model), "a pass changed")
    model.eval()
    for (x, _), inside, (batch, output) in zip(DATA, seen, outputs, strict=True):
        assert torch.equal(inside, model[:4](x)) and torch.equal(output, model(x)) and not output.requires_grad
        assert torch.equal(batch[0], x)


def test_other_values_in_place_of_the_models_own():
    model, found = net(), []
    bias = torch.tensor([5.0, -5.0])
    pass_over(model, DATA[:1], {}, lambda batch, output: found.append(output), replaced={"4.bias": bias})
    expected = model.eval()(DATA[0][0]) - model[4].bias + bias
    torch.testing.assert_close(found[0], expected)
    assert not torch.equal(model[4].bias, bias)


def test_hooks_go_also_when_a_pass_fails():
    model = net()

    def fail(inside):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        pass_over(model, DATA, {("0", "input"): fail}, lambda *_: None)
    with pytest.raises(PlanError, match="path of a module"):
        pass_over(
            model, DATA, {("0", "input"): lambda x: None, ("no such module", "input"): lambda x: None}, lambda *_: None
        )
    assert not any(hooks(model)) and model.training


def test_resting_puts_modes_and_statistics_back():
    model = net().train()
    model[1].eval()
    before = bits(model)
    with resting(model, 0, "test"):
        assert not any(module.training for module in model.modules())
        model(DATA[0][0])
    assert [module.training for module in model] == [True, False, True, True, True]
    same(before, bits(model), "resting changed")
