"""Our trace against unit groups and weight roles written by hand."""

from collections import Counter
from collections.abc import Iterable
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from rekindle.graph import trace
from rekindle.testing.zoo import NOT_UNDERSTOOD, ZOO, ZooModel, zoo
from tests.graph.expected import EXPECTED, FULL_SIZE
from tests.graph.expected_notation import G, Place

SIDES = ("incoming", "norms", "outgoing")
MEMBERS = [pytest.param(member, id=member.name) for member in zoo()]

# What a group is recognized by: units, kind and the names of the tensors on each side.
Key = tuple[int, str, frozenset[str], frozenset[str], frozenset[str]]


def expected_key(group: G) -> Key:
    return group.units, group.kind, *(frozenset(getattr(group, side)) for side in SIDES)


def traced_key(group: Any) -> Key:
    return group.size, group.kind, *(frozenset(slot.tensor for slot in getattr(group, side)) for side in SIDES)


def describe(key: Key) -> str:
    units, kind, *sides = key
    lines = [f"{units} {kind} units"]
    lines += [f"    {side:8} {', '.join(sorted(names)) or '-'}" for side, names in zip(SIDES, sides, strict=True)]
    return "\n".join(lines)


def differences(groups: Iterable[Any], expected: list[G]) -> str:
    """Empty when the traced groups are the expected ones, in any order."""
    found, wanted = Counter(map(traced_key, groups)), Counter(map(expected_key, expected))
    missing = [f"missing: {describe(key)}" for key in (wanted - found).elements()]
    unexpected = [f"unexpected: {describe(key)}" for key in (found - wanted).elements()]
    return "\n".join(missing + unexpected)


def elements(view: tuple[int, ...], dims: tuple[int, ...], index: list[list[int]]) -> list[Tensor]:
    """For each unit, the positions in the flat tensor that belong to it: no matter how the view was chosen."""
    positions = torch.arange(prod(view)).view(view)
    slices = positions.movedim(dims, tuple(range(len(dims)))).reshape(prod(view[dim] for dim in dims), -1)
    return [slices[indices].flatten() for indices in index]


def traced_elements(group: Any, side: str, tensor: str) -> list[Tensor]:
    slots = [slot.where for slot in getattr(group, side) if slot.tensor == tensor]
    parts = [elements(tuple(where.view), tuple(where.dims), where.index.tolist()) for where in slots]
    return [torch.cat(unit) for unit in zip(*parts, strict=True)]


def ties(per_tensor: Iterable[list[Tensor]]) -> dict[tuple[bytes, ...], list[list[int]]]:
    """What each unit ties together across tensors, and the first few positions of it to show."""
    units = [[part.unique() for part in unit] for unit in zip(*per_tensor, strict=True)]
    return {tuple(part.numpy().tobytes() for part in unit): [part[:6].tolist() for part in unit] for unit in units}


def assert_elements(group: Any, at: dict[tuple[str, str], Place]) -> None:
    """The same elements are tied together, however the units are numbered."""
    found = ties(traced_elements(group, side, tensor) for side, tensor in at)
    wanted = ties(elements(*place) for place in at.values())
    strays = [found[key] for key in found.keys() - wanted.keys()]
    where = ", ".join(f"{tensor} ({side})" for side, tensor in at)
    assert found.keys() == wanted.keys(), f"wrong elements tied in {where}; flat positions of some: {strays[:3]}"


def assert_groups(graph: Any, expected: list[G]) -> None:
    report = differences(graph.groups, expected)
    assert not report, "\n" + report
    traced = {traced_key(group): group for group in graph.groups}
    for group in expected:
        if group.at:
            assert_elements(traced[expected_key(group)], group.at)


def test_every_zoo_model_has_an_expectation() -> None:
    assert EXPECTED.keys() == ZOO.keys()


@pytest.mark.parametrize("member", MEMBERS)
def test_expectations_name_every_parameter_and_only_what_exists(member: ZooModel) -> None:
    model = member.build()
    parameters = {name for name, _ in model.named_parameters()}
    named = {tensor for group in EXPECTED[member.name] for side in SIDES for tensor in getattr(group, side)}
    assert named <= parameters | {name for name, _ in model.named_buffers()}
    assert parameters <= named


@pytest.mark.parametrize("member", MEMBERS)
def test_groups_of_the_zoo(member: ZooModel) -> None:
    graph = trace(member.build(), member.example())
    assert_groups(graph, EXPECTED[member.name])
    assert not graph.uncovered


@pytest.mark.parametrize("name", FULL_SIZE)
def test_groups_at_full_size(name: str) -> None:
    build, example, expected = FULL_SIZE[name]
    graph = trace(build(), example)
    assert_groups(graph, expected)
    assert not graph.uncovered


def slot(name: str, side: str, tensor: str) -> Any:
    graph = trace(ZOO[name].build(), ZOO[name].example())
    (found,) = [s for group in graph.groups for s in getattr(group, side) if s.tensor == tensor]
    return found


def test_flatten_after_convolution_is_a_repeat() -> None:
    where = slot("cnn_bn", "outgoing", "fc.weight").where
    assert where.index.shape == (11, 4)


def test_input_side_of_grouped_convolution_has_a_group_dimension() -> None:
    where = slot("grouped_conv", "outgoing", "conv3.weight").where
    assert tuple(where.view) == (2, 7, 5, 3, 3)
    assert tuple(where.dims) == (0, 2)


def test_grouped_query_repeats_value_units_in_the_output_projection() -> None:
    pytest.importorskip("transformers")
    where = slot("llama", "outgoing", "model.layers.0.self_attn.o_proj.weight").where
    assert where.index.shape == (12, 2)


def test_batch_norm_slots_say_what_they_are() -> None:
    graph = trace(ZOO["cnn_bn"].build(), ZOO["cnn_bn"].example())
    (group,) = [g for g in graph.groups if g.size == 7]
    kinds = {s.tensor: s.kind for s in group.norms}
    assert kinds == {"bn1.weight": "scale", "bn1.bias": "shift", "bn1.running_mean": "mean", "bn1.running_var": "var"}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_refused_or_named(name: str) -> None:
    member = NOT_UNDERSTOOD[name]
    with pytest.raises(Exception) as refusal:
        trace(member.build(), member.example())
    assert type(refusal.value).__module__.startswith("rekindle")
    assert trace(member.build(), member.example(), strict=False).not_understood


# Roles of weights ---------------------------------------------------------------------------------------------------


def fused_roles(weight: str) -> dict[str, str]:
    return {f"{weight}[{role}]": role for role in "qkv"}


def vit_roles(attention: dict[str, str], out: str) -> dict[str, str]:
    roles = {"patches.weight": "input", "head.weight": "head"}
    for block in ("blocks.0", "blocks.1"):
        roles |= {f"{block}.attention.{name}": role for name, role in attention.items()}
        roles |= {f"{block}.attention.{out}.weight": "o"}
        roles |= {f"{block}.mlp.0.weight": "hidden", f"{block}.mlp.2.weight": "hidden"}
    return roles


GPT2_ROLES = {
    f"transformer.h.{i}.{name}": role
    for i in (0, 1)
    for name, role in {
        **fused_roles("attn.c_attn.weight"),
        "attn.c_proj.weight": "o",
        "mlp.c_fc.weight": "hidden",
        "mlp.c_proj.weight": "hidden",
    }.items()
}
LLAMA_ROLES = {
    f"model.layers.{i}.{part}_proj.weight": role
    for i, (part, role) in product(
        (0, 1),
        [*((f"self_attn.{r}", r) for r in "qkvo"), *((f"mlp.{part}", "hidden") for part in ("gate", "up", "down"))],
    )
}
# The tied embedding of gpt and gpt2 has a test of its own.
ROLES: dict[str, dict[str, str]] = {
    "mlp": {"layers.0.weight": "input", "layers.1.weight": "hidden", "layers.2.weight": "head"},
    "vit_separate": vit_roles({f"{role}.weight": role for role in "qkv"}, "out"),
    "vit_fused": vit_roles(fused_roles("qkv.weight"), "out"),
    "vit_mha": vit_roles(fused_roles("mha.in_proj_weight"), "mha.out_proj"),
    "gpt": {name.removeprefix("transformer."): role for name, role in GPT2_ROLES.items()} | {"wpe.weight": "embedding"},
    "gpt2": GPT2_ROLES | {"transformer.wpe.weight": "embedding"},
    "llama": LLAMA_ROLES | {"model.embed_tokens.weight": "embedding", "lm_head.weight": "head"},
}
WITH_ROLES = [pytest.param(member, id=member.name) for member in zoo(ROLES)]


@pytest.mark.parametrize("member", WITH_ROLES)
def test_roles(member: ZooModel) -> None:
    graph = trace(member.build(), member.example())
    assert {weight.name: weight.role for weight in graph.weights if not weight.tied} == ROLES[member.name]
    assert all(weight.tensor == weight.name.split("[")[0] for weight in graph.weights)


@pytest.mark.parametrize("member", [pytest.param(m, id=m.name) for m in zoo(["gpt", "gpt2"])])
def test_tied_embedding_is_one_tensor(member: ZooModel) -> None:
    graph = trace(member.build(), member.example())
    tied = [weight for weight in graph.weights if weight.tied]
    assert {weight.tensor.split(".")[-2] for weight in tied} == {"wte"}
    assert {weight.role for weight in tied} <= {"embedding", "head"}


SIZES = {  # out, in
    "mlp": {"layers.0.weight": (7, 5), "layers.2.weight": (3, 11)},
    "vit_separate": {"blocks.0.attention.q.weight": (12, 12), "blocks.1.mlp.2.weight": (12, 20)},
    "vit_fused": {"blocks.0.attention.qkv.weight[k]": (12, 12)},
    "vit_mha": {"blocks.0.attention.mha.in_proj_weight[v]": (12, 12)},
    "gpt2": {"transformer.h.0.mlp.c_fc.weight": (20, 12), "transformer.h.0.attn.c_attn.weight[q]": (12, 12)},
    "llama": {"model.layers.0.self_attn.k_proj.weight": (12, 24), "model.layers.1.mlp.down_proj.weight": (24, 20)},
}


@pytest.mark.parametrize("member", [pytest.param(m, id=m.name) for m in zoo(SIZES)])
def test_weights_are_out_by_in(member: ZooModel) -> None:
    weights = {weight.name: weight for weight in trace(member.build(), member.example()).weights}
    for name, (out, in_) in SIZES[member.name].items():
        assert (weights[name].out, weights[name].in_, weights[name].fan_in) == (out, in_, in_), name
