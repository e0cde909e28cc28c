"""The model inside its wrappers, and what is refused because a process holds a part of it only."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph.unwrap import as_written, bare, inside, is_distributed, refuse_sharded, unwrapped

GLOO = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")


class LightningModule(nn.Module):
    """Known by its name: lightning need not be installed."""


class Trained(LightningModule):
    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)


def test_one_wrapper_several_and_none():
    net = nn.Linear(2, 2)
    assert bare(net) is net
    several = (
        torch.compile,
        nn.DataParallel,
        checkpoint_wrapper,
        lambda model: Trained(net=model),
        lambda model: torch.compile(nn.DataParallel(model)),
        lambda model: torch.compile(Trained(net=torch.compile(model), loss=nn.CrossEntropyLoss())),
    )
    for wrap in several:
        assert bare(wrap(net)) is net is unwrapped(wrap(net)) and not is_distributed(wrap(net))


def test_a_module_of_that_name_is_no_wrapper():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 2)

    holder = Holder()
    assert bare(holder) is holder


def test_a_lightning_module_with_more_than_one_holder_is_the_model_itself():
    net, weights = nn.Linear(2, 2), torch.ones(2)
    own = Trained(net=net)
    own.scale = nn.Parameter(torch.ones(1))
    buffered = Trained(net=net, loss=nn.CrossEntropyLoss(weight=weights))
    shared = Trained(net=net, again=nn.Sequential(net))
    for model in (Trained(a=net, b=nn.Linear(2, 2)), own, buffered, shared, Trained(), Trained(loss=nn.ReLU())):
        assert bare(model) is model


def test_a_lightning_module_as_lightning_has_it():
    lightning = pytest.importorskip("lightning")

    class Real(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(2, 2)

    model = Real()
    assert bare(model) is model.net


def test_what_a_part_has_around_itself():
    net = nn.Linear(2, 2)
    assert inside(net) is net
    assert inside(torch.compile(checkpoint_wrapper(net))) is net
    assert isinstance(inside(nn.DataParallel(net)), nn.DataParallel), "which has its own place for what it wraps"


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x).relu()


@pytest.mark.parametrize("way", ["wrapped", "in place"])
def test_compiled_parts_run_as_they_are_written_and_only_for_the_time(way):
    runs = []

    def backend(graph, inputs):
        def run(*args):
            runs.append("compiled")
            return graph(*args)

        return run

    part = Part()
    if way == "in place":
        part.compile(backend=backend)
    model = nn.Sequential(torch.compile(part, backend=backend) if way == "wrapped" else part)
    x = torch.ones(1, 2)
    with pytest.raises(KeyError), as_written(model):
        expected = model(x)
        raise KeyError
    assert not runs
    assert torch.equal(model(x), expected) and runs == ["compiled"]


def test_checkpointed_parts_run_as_they_are_written_and_only_for_the_time():
    calls = []

    def checkpoint(part, *args, **kwargs):
        calls.append(part)
        return part(*args, **kwargs)

    model, x = nn.Sequential(checkpoint_wrapper(Part(), checkpoint_fn=checkpoint)), torch.ones(1, 2)
    names = [name for name, _ in model.named_modules()]
    with pytest.raises(KeyError), as_written(model), as_written(model):
        expected = model(x)
        raise KeyError
    assert not calls and [name for name, _ in model.named_modules()] == names
    assert torch.equal(model(x), expected) and len(calls) == 1


@pytest.fixture
def one_process(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@GLOO
def test_several_processes_also_below_a_compiler(one_process):
    net = nn.Linear(2, 2)
    wrapped = DistributedDataParallel(net)
    for around in (wrapped, torch.compile(wrapped), Trained(net=wrapped)):
        assert is_distributed(around) and bare(around) is net
    assert not is_distributed(net) and not is_distributed(torch.compile(net))


@GLOO
def test_sharded_models_and_state_dicts_are_refused(one_process):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    fully_shard(model, mesh=mesh)
    for around in (model, torch.compile(model), Trained(net=model)):
        with pytest.raises(GraphError, match="whole tensors") as caught:
            bare(around)
        assert "0.weight (DTensor), 0.bias (DTensor), 1.weight (DTensor) and 1 more" in caught.value.got
        assert "before it is sharded" in caught.value.fix and "full_tensor()" in caught.value.fix
    with pytest.raises(GraphError, match="DTensor"):
        refuse_sharded(model.state_dict())
    whole = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}
    refuse_sharded({**whole, "step": 3})
    buffered = nn.BatchNorm1d(2)
    buffered.running_mean = distribute_tensor(torch.zeros(2), mesh, [Shard(0)])
    with pytest.raises(GraphError, match=r"running_mean \(DTensor\)"):
        bare(buffered)


@GLOO
@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`")
def test_the_older_way_to_shard_is_refused_wherever_it_stands(one_process):
    from torch.distributed.fsdp import FullyShardedDataParallel

    for kept in (True, False):
        part = FullyShardedDataParallel(nn.Linear(2, 2), use_orig_params=kept, device_id=torch.device("cpu"))
        with pytest.raises(GraphError, match="sharded: FullyShardedDataParallel\n"):
            bare(part)
        with pytest.raises(GraphError, match="sharded: FullyShardedDataParallel at 1\n"):
            bare(nn.Sequential(nn.Linear(2, 2), torch.compile(part)))


class LightningModule(nn.Module):
    """Known by its name: lightning need not be installed."""


class Hands(LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net


class AsItIs(Hands):
    def forward(self, x, mask=None):
        return self.net(x)


class Prepares(Hands):
    def forward(self, x):
        return self.net((x - 128) / 64)


class Finishes(Hands):
    def forward(self, x):
        return self.net(x).softmax(-1)


class Twice(Hands):
    def forward(self, x):
        self.net(x)
        return self.net(x)


@pytest.mark.parametrize(
    ("kind", "off"), [(Hands, True), (AsItIs, True), (Prepares, False), (Finishes, False), (Twice, False)]
)
def test_a_lightning_module_that_computes_something_is_the_model_itself(kind, off):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model = kind(net)
    assert bare(model) is (net if off else model)
    assert model.net is net and list(model._modules) == ["net"]


def test_what_is_prepared_is_seen_by_methods_that_run_the_model():
    torch.manual_seed(0)
    data = [255 * torch.rand(32, 2)]
    model = Prepares(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)))
    plain = nn.Module()
    plain.net, plain.__class__ = model.net, type("Plain", (nn.Module,), {"forward": Prepares.forward})
    found = [rk.plan("layerwise", each, example=data[0], data=data).surgery[0].put for each in (model, plain)]
    assert found[0] == found[1] and abs(found[0].mean) < 3


def test_a_lazy_layer_is_refused_until_a_batch_has_gone_through():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    for call in (bare, lambda lazy: refuse_sharded(lazy.state_dict())):
        with pytest.raises(GraphError, match="run a batch first"):
            call(model)
    model(torch.ones(2, 4))
    assert bare(model) is model
