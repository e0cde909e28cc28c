"""Values without a way to a model's units."""

import logging

import torch
from torch import nn

from rekindle.graph.branching.plain_values import is_plain, is_settings, modules_in, outer_values

NUMBER, LAYERS, LOG = 3, [nn.ReLU()], logging.getLogger("test")


class Settings:
    def __init__(self, **given):
        self.__dict__.update(given)


def test_plain_values():
    assert all(map(is_plain, [1, "a", torch.float32, (2, "b"), torch.relu, nn.functional.gelu, nn.Linear, torch, LOG]))
    layer = nn.Linear(2, 2)
    assert not any(map(is_plain, [None, [1], torch.ones(1), layer, layer.forward, lambda: 0, (1, layer)]))


def test_settings():
    assert all(map(is_settings, [None, [1, 2], {"a": 1}, Settings(a=1, b=[2], c=None)]))
    assert not any(map(is_settings, [[nn.ReLU()], Settings(a=nn.ReLU()), Settings(a=[torch.ones(1)]), torch.ones(1)]))


def test_modules_one_level_deep():
    layer = nn.ReLU()
    assert list(modules_in(layer)) == list(modules_in([layer])) == list(modules_in(Settings(a=layer))) == [layer]
    assert not list(modules_in("layer")) and not list(modules_in([[layer]]))


def test_what_a_function_has_from_outside():
    inner = nn.ReLU()
    found = list(outer_values(lambda x: [inner(LAYERS[0](each)) for each in range(NUMBER)]))
    assert inner in found and LAYERS in found and NUMBER in found
