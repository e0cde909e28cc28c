"""Patterns and statistics, by name."""

import pytest
import torch
from torch import nn

from rekindle.graph.names import STATISTICS, canonical, is_statistic, matches


@pytest.mark.parametrize(
    ("name", "patterns", "fits"),
    [
        ("head.weight", ["head.*"], True),
        ("head.weight", ["stem.*", "*.weight"], True),
        ("head.weight", ["head"], False),
        ("Head.weight", ["head.*"], False),  # as on Linux, whatever the system
        ("blocks.10.fc", ["blocks.1.*"], False),
        ("blocks.1.fc", ["blocks.[0-4].*"], True),
        ("head.weight", [], False),
    ],
)
def test_patterns(name, patterns, fits):
    assert matches(name, patterns) is fits


def test_the_statistics_of_every_normalization_and_nothing_that_is_trained():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.InstanceNorm2d(2, track_running_stats=True))
    assert {name.rpartition(".")[2] for name, _ in model.named_buffers()} == set(STATISTICS)
    assert all(is_statistic(name) for name, _ in model.named_buffers())
    assert not any(is_statistic(name) for name, _ in model.named_parameters())
    assert is_statistic("running_mean") and not is_statistic("running_mean.weight")
    assert torch.is_tensor(model[1].running_var)


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("0._orig_mod.weight", "0.weight"),
        ("_orig_mod._checkpoint_wrapped_module.fc.bias", "fc.bias"),
        ("blocks.1._fsdp_wrapped_module", "blocks.1"),
        ("_orig_mod", ""),
        ("", ""),
        ("module.fc.weight", "module.fc.weight"),  # as a model may well call its own part
        ("my_orig_mod.weight", "my_orig_mod.weight"),
    ],
)
def test_names_without_what_wrappers_add(name, without):
    assert canonical(name) == without == canonical(without)
