"""What every per-step method promises, on small networks; methods are found by themselves."""

import dataclasses

import pytest
import torch
from torch.utils import _pytree as pytree

import rekindle as rk
from rekindle.graph.calls.inputs import as_call
from rekindle.methods.registry import settings_class
from rekindle.testing import ZOO
from rekindle.testing.aged import bits, graph_of

PER_STEP = [card.key for card in rk.list_methods() if card.kind == "per-step"]
MODELS = ["mlp", "cnn_bn", "vit_fused"]


def lively(key):
    """Settings with which a method acts within six steps."""
    cls = settings_class(key)
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in {"period": 2, "rate": 0.2}.items() if name in names})


def loss_of(model, batch):
    args, kwargs = as_call(model, batch)
    leaves = pytree.tree_leaves(model(*args, **kwargs))
    return torch.stack([x.square().mean() for x in leaves if torch.is_tensor(x) and x.is_floating_point()]).sum()


def keep(member, model, optimizer, method):
    return rk.Keeper(model, optimizer, method, example=member.example(), graph=graph_of(member), seed=3)


def test_methods_are_found():
    assert {"l2", "l2_init", "parseval", "spectral", "weight_clip", "hare_tortoise"} <= set(PER_STEP)


@pytest.mark.parametrize("key", PER_STEP)
def test_accumulated_half_batches_are_one_step(key):
    member = ZOO["mlp"]
    batch = member.example().double()
    results = []
    for parts in (1, 2):
        model = member.build().double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        keeper = keep(member, model, optimizer, lively(key))
        for _ in range(4):
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                ((loss_of(model, part) + keeper.penalty()) / parts).backward()
            optimizer.step()
            keeper.step()
        assert keeper.steps == 4
        results.append(bits(model))
    for name, tensor in results[0].items():
        assert torch.allclose(tensor, results[1][name], rtol=1e-9, atol=1e-11), f"{name} depends on the accumulation"
