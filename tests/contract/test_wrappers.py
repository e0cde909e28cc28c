"""Every entry takes a model in its wrappers and gives the bits of the bare one, or refuses it where it is sharded.

This file is also the script that each of two processes runs, with a model that `fully_shard` has split between them.
"""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph.modules import tensors_of
from rekindle.graph.scan import scan
from rekindle.graph.unwrap import bare

EXAMPLE = torch.linspace(-1, 1, 4 * 6).reshape(4, 6)
BATCHES = [(EXAMPLE + n, torch.tensor([0, 1, 2, 1])) for n in range(3)]
DRAWN = ("full_reset", "shrink_perturb", "welsr", "fire")


class LightningModule(nn.Module):
    """Known by its name: lightning need not be installed."""


class Trained(LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net, self.loss = net, nn.CrossEntropyLoss()

    def forward(self, x):
        return self.net(x)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    middle = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), middle, nn.Linear(8, 3))


def compiled_part() -> nn.Sequential:
    model = network()
    model[0], model[2] = torch.compile(model[0], backend="eager"), torch.compile(model[2], backend="eager")
    return model


def checkpointed_part() -> nn.Sequential:
    model = network()
    model[2] = checkpoint_wrapper(model[2])
    model[3] = checkpoint_wrapper(torch.compile(model[3], backend="eager"))
    return model


WRAPPED = {
    "compiled": lambda: torch.compile(network(), backend="eager"),
    "compiled part": compiled_part,
    "checkpointed part": checkpointed_part,
    "distributed": lambda: DistributedDataParallel(network()),
    "lightning": lambda: Trained(network()),
    "all": lambda: torch.compile(DistributedDataParallel(Trained(compiled_part())), backend="eager"),
}


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory):
    store = f"file://{tmp_path_factory.mktemp('one') / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def values(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors_of(bare(model)).items()}


def same(one, other) -> bool:
    return [*one] == [*other] and all(torch.equal(one[name], other[name]) for name in one)


def names_in(graph) -> list[object]:
    groups = [(group.name, [slot.module for slot in (*group.incoming, *group.outgoing)]) for group in graph.groups]
    return [[(weight.name, weight.module) for weight in graph.weights], groups, [*graph.initializers], graph.uncovered]


@pytest.mark.parametrize("way", WRAPPED)
def test_graphs_have_the_names_of_the_bare_model(way):
    model = WRAPPED[way]()
    assert names_in(rk.trace(model, EXAMPLE)) == names_in(rk.trace(network(), EXAMPLE))
    assert names_in(scan(model)) == names_in(scan(network()))
    proved = rk.trace(model, EXAMPLE).verify(model, EXAMPLE).proved
    assert proved and proved == rk.trace(network(), EXAMPLE).verify(network(), EXAMPLE).proved


@pytest.mark.parametrize("method", DRAWN)
@pytest.mark.parametrize("way", WRAPPED)
def test_draws_do_not_see_wrappers(way, method):
    plain, model = network(), WRAPPED[way]()
    before = values(plain)
    assert same(before, values(model))
    found = [rk.apply_(method, each, example=EXAMPLE, data=BATCHES, seed=3) for each in (plain, model)]
    assert same(values(plain), values(model)) and not same(before, values(plain))
    assert str(found[0]) == str(found[1])
    found[1].undo()
    assert same(before, values(model))


@pytest.mark.parametrize("way", WRAPPED)
def test_a_reference_may_be_wrapped(way):
    torch.manual_seed(1)
    plain, other = network(), network()
    for model, start in ((plain, network()), (other, WRAPPED[way]())):
        for tensor in model.parameters():
            tensor.data.add_(1)
        rk.apply_("full_reset", model, reference=start)
    assert same(values(plain), values(other)) and same(values(plain), values(network()))


@pytest.mark.parametrize("way", WRAPPED)
def test_an_audit_reads_the_same(way):
    given = {"example": EXAMPLE, "reference": network(), "probe": False}
    found, expected = (rk.audit(model, BATCHES, **given) for model in (WRAPPED[way](), network()))
    assert found.to_dict() == expected.to_dict() and found.readings


@pytest.mark.parametrize("way", ["compiled part", "checkpointed part"])
def test_the_probe_draws_every_part_afresh(way):
    found, expected = (rk.audit(model, BATCHES, metrics=["trainability"]) for model in (WRAPPED[way](), network()))
    final = [one.readings["trainability"].details["final"]["fresh"] for one in (found, expected)]
    assert final[0] == pytest.approx(final[1], rel=1e-5)


@pytest.mark.parametrize("way", WRAPPED)
def test_statistics_are_recalibrated_under_their_names(way):
    plain, model = network(), WRAPPED[way]()
    found = [rk.recalibrate_(each, BATCHES) for each in (plain, model)]
    assert same(values(plain), values(model)) and not same(values(plain), values(network()))
    assert [row.tensor for row in found[0].rows] == [row.tensor for row in found[1].rows]


@pytest.mark.parametrize("way", WRAPPED)
def test_muon_has_the_same_groups(way):
    def groups(model, **given):
        return [(group["algorithm"], group["param_names"]) for group in rk.muon(model, **given).param_groups]

    for given in ({}, {"example": EXAMPLE}):
        found = groups(WRAPPED[way](), **given)
        assert found == groups(network(), **given) and len(found) == 2


@pytest.mark.parametrize("way", ["compiled", "compiled part", "lightning"])
def test_compare_takes_it(way):
    given = {"methods": ["shrink_perturb"], "budget": 2, "seeds": 2, "optimizer": "sgd:lr=0.01"}
    found, expected = (rk.compare(model, BATCHES, BATCHES, **given) for model in (WRAPPED[way](), network()))
    assert not found.failed
    losses = [[(row["methods"], row["event"], row["loss"]) for row in each.rows] for each in (found, expected)]
    assert losses[0] == losses[1]


# --- split between two processes ---

ENTRIES = {
    "trace": lambda model: rk.trace(model, EXAMPLE),
    "plan": lambda model: rk.plan("rescale", model, example=EXAMPLE),
    "apply_": lambda model: rk.apply_("fire", model, example=EXAMPLE),
    "audit": lambda model: rk.audit(model, example=EXAMPLE),
    "audit of a state dict": lambda model: rk.audit(model.state_dict()),
    "compare": lambda model: rk.compare(model, BATCHES, BATCHES, ["fire"], budget=1, seeds=2),
    "Keeper": lambda model: rk.Keeper(model, None, "l2_init"),
    "recalibrate_": lambda model: rk.recalibrate_(model, BATCHES),
    "muon": lambda model: rk.muon(model),
    "reference": lambda model: rk.plan("full_reset", network(), reference=model),
}


def work(folder: Path, rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    store = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    before = [parameter.full_tensor() for parameter in model.parameters()]
    found = {name: refusal(entry, model) for name, entry in ENTRIES.items()}
    after = [parameter.full_tensor() for parameter in model.parameters()]
    found["unchanged"] = all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort a process that ends in the usual way, after all is done


def refusal(entry, model) -> str:
    try:
        entry(model)
    except GraphError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


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


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_model_that_is_split_between_processes_is_refused(pair, entry):
    for found in pair:
        assert "(DTensor)" in found[entry] and "before it is sharded" in found[entry], found[entry]
        assert found["unchanged"]


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
