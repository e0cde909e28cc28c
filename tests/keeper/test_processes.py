"""Two processes that train together: the same edits on both, with different data.

This file is also the script that each of the two runs.
"""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.testing.aged import moments

METHODS = {
    "redo": "redo:period=2,threshold=0.3",
    "cbp": "cbp:rate=0.1,maturity=1",
    "snr": "snr:longest=2",
    "all": "soft_rescale+redo:period=2,threshold=0.3+cbp:rate=0.1,maturity=1+l2_init:strength=0.01",
}
STEPS = 5


# --- what each process does ---


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 12), nn.ReLU()]
    layers[4].bias.data[3] = -30.0  # a unit that is silent on both
    return nn.Sequential(*layers, nn.Linear(12, 3))


def batch(rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return data of one process, which wakes other units than that of its neighbor."""
    draw = torch.Generator().manual_seed(100 * rank + number)
    inputs = torch.randn(8, 1, 6, 6, generator=draw) * 0.3 + torch.linspace(-2, 2, 6) * (1 - 2 * rank)
    return inputs, torch.randint(0, 3, (8,), generator=draw)


def trained(methods: str, rank: int, boundary: str = "") -> dict[str, object]:
    inner = network()
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.Adam(inner.parameters(), 0.02)
    keeper = rk.Keeper(model, optimizer, methods, example=torch.zeros(2, 1, 6, 6))
    for number in range(STEPS):
        inputs, targets = batch(rank, number)
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(inputs), targets) + keeper.penalty()).backward()
        optimizer.step()
        keeper.step()
    if boundary:
        keeper.boundary([batch(rank, 77)], methods=boundary)
    memory = [moment for p in inner.parameters() for moment in moments(optimizer, p)]
    keeper.close()
    parameters = [p.detach().clone() for p in inner.parameters()]
    return {"parameters": parameters, "memory": memory, "recycled": dict(keeper.recycled)}


def refusal() -> str:
    try:
        rk.Keeper(DistributedDataParallel(network()), None, "plasticity_injection")
    except KeeperError as error:
        return str(error)
    return "none"


def work(folder: Path, rank: int) -> None:
    store = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    found: dict[str, object] = {name: trained(methods, rank) for name, methods in METHODS.items()}
    found["boundary"] = trained("redo:period=2,threshold=0.3", rank, boundary="dash")
    found["refusal"] = refusal()
    with patch("rekindle.observe.activations.processes", lambda: 1):
        found["apart"] = trained(METHODS["redo"], rank)
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort a process that ends in the usual way, after all is done


# --- what is expected of them ---


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    commands = [[sys.executable, __file__, str(folder), str(rank)] for rank in range(2)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        for each in running:
            _, errors = each.communicate(timeout=180)
            assert each.returncode == 0, errors[-3000:]
    finally:
        for each in running:
            each.kill()
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def same(a, b) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", [*METHODS, "boundary"])
def test_both_have_the_same_bits(pair, name):
    one, other = (found[name] for found in pair)
    assert same(one["parameters"], other["parameters"])
    assert same(one["memory"], other["memory"])
    assert one["recycled"] == other["recycled"] and sum(one["recycled"].values()) > 0


def test_without_the_average_they_part(pair):
    """What each process sees is so different that the test above would fail if they did not put it together."""
    one, other = (found["apart"] for found in pair)
    assert not same(one["parameters"], other["parameters"])


def test_a_change_of_structure_is_refused(pair):
    assert all("wrap the model anew" in found["refusal"] for found in pair)


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
