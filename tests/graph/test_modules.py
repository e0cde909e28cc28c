"""Parts of a model by name."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from rekindle.errors import PlanError
from rekindle.graph.initializers import initializers_of
from rekindle.graph.modules import (
    call_with,
    main_output,
    modules_of,
    parameters_of,
    stored_names,
    submodule,
    tensors_of,
    weight_shape,
)
from rekindle.graph.scan import scan


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(2), persistent=False)


def test_every_tensor_once_under_its_first_name():
    model = Tied()
    tensors = tensors_of(model)
    assert set(tensors) == {
        "embed.weight",
        "norm.weight",
        "norm.bias",
        "head.bias",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
        "mask",
    }
    assert tensors["embed.weight"] is model.head.weight and tensors["mask"] is model.mask


def test_a_path_that_is_not_there_is_answered_with_names_that_are():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2)))
    assert submodule(model, "1.0") is model[1][0] and submodule(model, "") is model
    with pytest.raises(PlanError, match="path of a module") as caught:
        submodule(model, "layer.0")
    assert caught.value.got == "'layer.0'" and "0, 1.0" in caught.value.fix, "those with the same last name"
    with pytest.raises(PlanError) as caught:
        submodule(model, "head")
    assert "0, 1, 1.0" in caught.value.fix


def test_the_tensor_that_a_module_hands_on():
    x = torch.ones(2)
    assert main_output(x) is x and main_output((x, 1)) is x and main_output([x]) is x
    for wrong in ({"a": x}, torch.ones(2, dtype=torch.long), (), (1, x), None):
        with pytest.raises(PlanError, match="tensor of floats"):
            main_output(wrong)


def plain():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    return nn.Sequential(nn.Linear(3, 4), inner, nn.Linear(3, 2)).eval()


def wrapped():
    model = plain()
    model[1][0] = torch.compile(model[1][0])
    model[1] = torch.compile(model[1])
    model[2] = checkpoint_wrapper(model[2])
    return model


def test_names_do_not_see_wrappers_inside_the_model():
    model, other = wrapped(), plain()
    assert [*parameters_of(model)] == [*parameters_of(other)] == [name for name, _ in other.named_parameters()]
    assert [*tensors_of(model)] == [*tensors_of(other)]
    assert [*modules_of(model)] == [path for path, _ in other.named_modules()]
    for path, module in other.named_modules():
        if not isinstance(module, nn.Sequential):
            assert type(submodule(model, path)) is type(modules_of(model)[path]) is type(module)
    assert submodule(model, "1.0") is model[1]._orig_mod[0]._orig_mod is submodule(model, "1._orig_mod.0._orig_mod")
    assert stored_names(model)["1.0.weight"] == "1._orig_mod.0._orig_mod.weight"


def test_further_names_of_tied_tensors_when_asked_for():
    model = Tied()
    assert "head.weight" not in parameters_of(model) and "head.weight" not in tensors_of(model)
    assert parameters_of(model, remove_duplicate=False)["head.weight"] is model.embed.weight
    assert tensors_of(model, remove_duplicate=False)["head.weight"] is model.embed.weight
    assert set(tensors_of(model)) | {"head.weight"} == set(stored_names(model))


def test_other_values_by_names_without_wrappers():
    model, x = wrapped(), torch.ones(2, 3)
    new = {"1.0.weight": torch.zeros(3, 4), "1.1.running_mean": torch.ones(3), "2.bias": torch.ones(2)}
    other = plain()
    expected = torch.func.functional_call(other, new, (x,))
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(call_with(model, new, (x,), {}), expected)
        assert not torch.equal(model(x), expected), "and the model itself has its own"


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm])
@pytest.mark.parametrize(
    "layer", [nn.Linear(3, 2), nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose1d(3, 5, 4)], ids=repr
)
def test_to_look_at_a_model_does_not_run_what_norms_its_weights(norm, layer):
    """Under spectral_norm a weight that is read in training mode moves the buffers of the norm."""
    expected = tuple(layer.weight.shape)
    model = nn.Sequential(norm(copy.deepcopy(layer))).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert weight_shape(model[0]) == expected
    assert scan(model).parameters and initializers_of(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
