"""Processes that share every batch; what needs several of them is in `tests/lab/runs/test_processes.py`."""

import pytest
import torch
from torch import nn

from rekindle.errors import RekindleError
from rekindle.training import replicas


def test_alone_nothing_is_shared_wrapped_or_seeded():
    model, batch, before = nn.Linear(2, 2), torch.arange(7), torch.get_rng_state()
    assert replicas.rank() == 0 and replicas.wrap(model) is model
    assert torch.equal(replicas.own_share(batch), batch)
    assert replicas.mean(torch.tensor(0.5)) == 0.5
    replicas.seed_dropout(0, "here")
    assert torch.equal(torch.get_rng_state(), before)
    with replicas.exchanged(model, now=False):
        pass


def test_a_batch_that_cannot_be_shared_evenly_is_refused(monkeypatch):
    monkeypatch.setattr(replicas, "processes", lambda: 3)
    with pytest.raises(RekindleError, match="that 3 processes can share evenly"):
        replicas.own_share(torch.arange(7))


def test_shares_are_the_batch(monkeypatch):
    monkeypatch.setattr(replicas, "processes", lambda: 2)
    parts = []
    for rank in (0, 1):
        monkeypatch.setattr(replicas, "rank", lambda rank=rank: rank)
        parts.append(replicas.own_share(torch.arange(6)))
    assert torch.equal(torch.cat(parts), torch.arange(6))
