"""From a module to its operations, with the module left as it was."""

import logging
import warnings

import pytest
import torch
from torch import nn

from rekindle.errors import GraphError
from rekindle.graph.export import aliases_of, at_rest, canonical_names, export


class Noted(nn.Module):
    """Notes the mode and settings in which it is called."""

    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(3, 2), nn.Dropout(0.5)
        self.config = type("Config", (), {"use_cache": True})()
        self.seen = []

    def forward(self, x):
        self.seen.append((self.training, self.drop.training, self.config.use_cache))
        return self.drop(self.fc(x))


def test_at_rest_and_then_as_before_also_after_an_error():
    model = Noted().train()
    model.drop.eval()
    torch.backends.mha.set_fastpath_enabled(True)
    with pytest.raises(KeyError), at_rest(model):
        model(torch.ones(1, 3))
        assert not torch.backends.mha.get_fastpath_enabled()
        raise KeyError
    assert model.seen == [(False, False, False)]
    assert (model.training, model.drop.training, model.config.use_cache) == (True, False, True)
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_program_computes_the_model():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)).train(), torch.randn(5, 3)
    program = export(model, x)
    assert model.training
    with at_rest(model):
        torch.testing.assert_close(program.module()(x), model(x))


def test_exporting_is_quiet_and_leaves_filters_and_logger():
    logger = logging.getLogger("torch.export")
    before = logger.level, list(warnings.filters)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        export(nn.Linear(3, 2), torch.ones(1, 3))
    assert not heard and (logger.level, list(warnings.filters)) == before


def test_what_cannot_be_followed_is_told_in_three_parts():
    with pytest.raises(GraphError, match="torch.export can follow") as caught:
        export(nn.Linear(3, 2), torch.ones(1, 4))
    assert caught.value.got and "model(example)" in caught.value.fix and caught.value.__cause__ is not None


def test_names_of_tied_tensors():
    model = nn.Module()
    model.a, model.b = nn.Linear(2, 2), nn.Linear(2, 2)
    model.b.weight = model.a.weight
    model.c = model.a
    names = canonical_names(model)
    assert names == {
        "a.weight": "a.weight",
        "a.bias": "a.bias",
        "b.weight": "a.weight",
        "b.bias": "b.bias",
        "c.weight": "a.weight",
        "c.bias": "a.bias",
    }
    assert aliases_of(names) == {"a.weight": ("b.weight", "c.weight"), "a.bias": ("c.bias",)}
