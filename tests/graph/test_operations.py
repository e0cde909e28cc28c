"""Each family of operations on a module of a few lines, against unit groups written by hand.

Three independent checks a module: the groups are the expected ones, `verify` proves them on the model, and two units of
a group can change places in all their slots without a change at the output.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from rekindle.errors import GraphError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.export import at_rest
from rekindle.graph.operations import TABLE, Call, units_after
from rekindle.graph.operations.table import define
from rekindle.graph.trace_log import Location, TraceLog
from rekindle.graph.value import Value
from tests.graph.operation_cases import Case, L, Net, data, e_h, weight
from tests.graph.operations_once_wrong import ONCE_WRONG
from tests.graph.operations_products import MODELS, PRODUCTS, attend, attention
from tests.graph.operations_single import ELEMENTWISE, REARRANGE, NORMALizE
from tests.graph.test_groups import assert_groups

WORKING = [*ELEMENTWISE, *REARRANGE, *NORMALizE, *PRODUCTS, *MODELS]

CASES = [pytest.param(c, id=c.name) for c in (*WORKING, *(c for _, c in ONCE_WRONG))]


@pytest.mark.parametrize("case", CASES)
def test_operations(case: Case) -> None:
    model = case.model()
    graph = trace(model, case.example)
    assert_groups(graph, case.groups)
    assert set(graph.uncovered) == set(case.uncovered)
    graph.verify(model, case.example)
    if case.swap:
        assert_units_can_change_places(graph, model, case.example)


def assert_units_can_change_places(graph: UnitGraph, model: nn.Module, example: Any) -> None:
    """The last unit and its neighbor change places in every slot: the same network, if nothing was left out."""
    args, kwargs = as_call(model, example)
    noise = torch.Generator().manual_seed(1)
    drawn = {
        name: torch.rand(p.shape, generator=noise) + 0.5
        for name, p in model.state_dict().items()
        if p.dtype.is_floating_point
    }
    for group in graph.groups:
        tensors, done = dict(drawn), set()
        for slot in (*group.incoming, *group.norms, *group.outgoing) if group.size > 1 and not group.leaves else ():
            region = (slot.tensor, slot.where.view, slot.where.dims, slot.where.index.numpy().tobytes())
            if region not in done:  # a tensor that writes and reads has one slot on each side
                order = [*range(group.size - 2), group.size - 1, group.size - 2]
                part = slot.where.read(tensors[slot.tensor])
                tensors[slot.tensor] = slot.where.write(tensors[slot.tensor], part[order])
            done.add(region)
        with torch.no_grad(), at_rest(model):
            before, after = (functional_call(model, t, args, kwargs) for t in (drawn, tensors))
        torch.testing.assert_close(
            after, before, rtol=1e-3, atol=1e-4, msg=f"{group.name}: two units cannot change places"
        )


# Roles ----------------------------------------------------------------------------------------------------------------


def roles(model: nn.Module, example: Any) -> dict[str, str]:
    return {weight.name: weight.role for weight in trace(model, example).weights}


def test_what_reads_a_single_unit_is_hidden() -> None:
    assert roles(nn.Sequential(L(4, 1), nn.Tanh(), L(1, 3), nn.Tanh(), L(3, 2)), data(3, 4))["2.weight"] == "hidden"


def test_what_mixes_tokens_of_units_is_hidden() -> None:
    net = Net(lambda m, x: m.h(m.t(m.e(x).transpose(1, 2)).mean(-1)), {"e": L(4, 6), "t": L(3, 5), "h": L(6, 2)})
    assert roles(net, data(2, 3, 4))["t.weight"] == "hidden"


@pytest.mark.parametrize("name", ["noisy_layer", "standardized_weight", "low_rank_update"])
def test_computed_weights_are_listed(name: str) -> None:
    (found,) = [c for _, c in ONCE_WRONG if c.name == name]
    listed = {weight.tensor for weight in trace(found.model(), found.example).weights}
    assert listed & {"mu", "a.weight"}


def test_what_is_pooled_in_front_of_a_layer_is_no_head() -> None:
    net = Net(lambda m, x: m.h(m.e(x).view(-1, 3, 4).mean(1)), {"e": L(4, 12), "h": L(4, 2)})
    assert roles(net, data(3, 4))["e.weight"] == "input"


# What is not understood -----------------------------------------------------------------------------------------------

NOT_UNDERSTOOD = {
    "topk": lambda: Net(lambda m, x: m.h(m.e(x).topk(3, -1).values), {"e": L(4, 6), "h": L(3, 2)}),
    "sort": lambda: Net(lambda m, x: m.h(m.e(x).sort(-1).values), {"e": L(4, 6), "h": L(6, 2)}),
}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_named(name: str) -> None:
    model, example = NOT_UNDERSTOOD[name](), data(2, 3, 4)
    with pytest.raises(GraphError):
        trace(model, example)
    assert name in trace(model, example, strict=False).not_understood[0]


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_reason_of_what_enters_an_unknown_operation(name: str) -> None:
    graph = trace(NOT_UNDERSTOOD[name](), data(2, 3, 4), strict=False)
    assert name in graph.uncovered["e.weight"]


def test_units_that_leak_into_what_is_not_understood_have_no_group() -> None:
    """Sorted values mixed by the data: who reads the mixture is not known."""

    def forward(m: Any, x: Any) -> Any:
        mixed = m.e(x).sort(-1).values.view(-1, 4, 3) @ m.g(x).softmax(-1)[:, :, None]
        return m.h(torch.cat([m.v(x), mixed.squeeze(-1)], -1))

    net = Net(forward, {"e": L(4, 12), "g": L(4, 3), "v": L(4, 5), "h": L(9, 2)})
    graph = trace(net, data(2, 4), strict=False)
    assert [group.name for group in graph.groups] == ["v", "h"]
    assert "aten.sort" in graph.uncovered["g.weight"]
    assert graph.verify(net, data(2, 4)).proved == ("v",)


def test_reason_of_a_parameter_that_leaves_the_model() -> None:
    net = Net(lambda m, x: (m.h(m.e(x)), m.log_std.exp()), e_h() | {"log_std": weight(1, 2)})
    assert "not used" not in trace(net, data(3, 4)).uncovered["log_std"]


# Verification ---------------------------------------------------------------------------------------------------------


def test_units_without_effect_are_not_provable() -> None:
    net, example = Net(attend, attention()), data(2, 1, 5)
    graph = trace(net, example)
    assert "q" in graph.verify(net, example).not_provable


def test_noise_in_forward_is_the_same_in_every_trial() -> None:
    net = Net(lambda m, x: m.h(F.relu(m.a(m.e(x) + torch.randn(3, 6)))), {"e": L(4, 6), "a": L(6, 5), "h": L(5, 2)})
    net = Net(lambda m, x: (m.inner(x), x + torch.randn(3, 4)), {"inner": net})
    graph = trace(net, data(3, 4))
    found = graph.verify(net, data(3, 4))
    assert {"inner.e", "inner.a"} <= set(found.proved), found


def test_every_operation_is_defined_once_with_both_rules() -> None:
    assert all(callable(operation.units) and callable(operation.scale) for operation in TABLE.values())
    with pytest.raises(ValueError, match="relu is defined twice"):
        define("relu", units=TABLE["tanh"].units, scale=TABLE["tanh"].scale)


def test_what_is_in_no_table_is_named() -> None:
    log = TraceLog()
    call = Call(log, "nothing_of_the_kind", torch.relu, (Value((2,), data=True),), {}, (2,), Location("m", "aten.x"))
    assert units_after(call).opaque == {"m: aten.x"} and list(log.not_understood) == ["m: aten.x"] and not log.tape
