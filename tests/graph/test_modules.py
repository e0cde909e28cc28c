"""Parts of a model by name."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.graph.modules import main_output, submodule, tensors_of


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
