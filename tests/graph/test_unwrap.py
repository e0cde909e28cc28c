"""The model inside its wrappers."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rekindle.graph.unwrap import is_distributed, unwrapped


def test_one_wrapper_several_and_none():
    net = nn.Linear(2, 2)
    assert unwrapped(net) is net
    for wrap in (torch.compile, nn.DataParallel, lambda model: torch.compile(nn.DataParallel(model))):
        assert unwrapped(wrap(net)) is net and not is_distributed(wrap(net))


def test_a_module_of_that_name_is_no_wrapper():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 2)

    holder = Holder()
    assert unwrapped(holder) is holder


@pytest.fixture
def one_process(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")
def test_several_processes_also_below_a_compiler(one_process):
    net = nn.Linear(2, 2)
    wrapped = DistributedDataParallel(net)
    for around in (wrapped, torch.compile(wrapped)):
        assert is_distributed(around) and unwrapped(around) is net
    assert not is_distributed(net) and not is_distributed(torch.compile(net))
