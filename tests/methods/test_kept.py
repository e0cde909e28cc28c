"""What stays in a treatment: frozen tensors, those without plain floats, and what goes with either."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import rekindle as rk
from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.errors import PlanError
from rekindle.graph.scan import scan
from rekindle.methods.kept import FROZEN, accounted, frozen_in, kept_in, without_kept

GAIN, DIRECTION = (f"0.parametrizations.weight.original{number}" for number in (0, 1))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.BatchNorm1d(4), nn.Linear(4, 2))


def with_codes() -> nn.Sequential:
    model = net()
    model[2].weight = nn.Parameter(torch.ones(2, 4, dtype=torch.int8), requires_grad=False)
    return model


def why(content) -> dict[str, str]:
    return {skip.tensor: skip.reason for skip in content.skips}


def test_statistics_of_frozen_layers_stay_with_them():
    model = net()
    model[1].requires_grad_(False)
    names = {"1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert frozen_in(model) == names and frozen_in(model.state_dict()) == frozenset()


def test_what_is_no_float_stays_also_where_frozen_ones_are_treated():
    model = with_codes()
    graph = scan(model)
    assert "int8" in kept_in(model, graph, frozen=True)["2.weight"] == kept_in(model, graph, frozen=False)["2.weight"]
    model[0].bias.requires_grad_(False)
    assert kept_in(model, graph, frozen=False)["0.bias"] == FROZEN
    assert "0.bias" not in kept_in(model, graph, frozen=True)


def test_edits_of_what_stays_become_skips():
    graph = scan(with_codes())
    edits = Edits((Edit("2.weight", torch.neg), Edit("2.bias", torch.neg)), (Skip("2.weight", "unknown"),))
    left = without_kept(edits, graph, kept_in(with_codes(), graph, frozen=True))
    assert [edit.tensor for edit in left.edits] == ["2.bias"]
    assert len(left.skips) == 1 and "int8" in why(left)["2.weight"]  # the reason that goes before all others


def test_a_gain_goes_with_its_direction():
    graph = scan(net())
    edits = Edits((Edit(GAIN, torch.neg), Edit(DIRECTION, torch.neg)))
    frozen = without_kept(edits, graph, {DIRECTION: FROZEN})
    assert why(frozen) == {GAIN: f"goes with {DIRECTION}, which is frozen", DIRECTION: FROZEN}
    odd = graph.leaving_out({DIRECTION: "complex64"})
    assert why(without_kept(edits, odd, odd.not_plain))[GAIN] == f"goes with {DIRECTION} (complex64)"
    assert not odd.weights_of(DIRECTION) and not odd.has_initializer(GAIN)


def test_an_edit_that_reads_what_cannot_be_computed_with_is_left_out():
    model = with_codes()
    graph = scan(model)
    reads = Edits((Edit("2.bias", lambda bias, weight: bias, reads=("2.weight",)),))
    assert "goes with 2.weight (int8" in why(without_kept(reads, graph, graph.not_plain))["2.bias"]


def test_every_parameter_is_accounted_for():
    model = with_codes()
    graph = scan(model)
    told = accounted(Edits(), graph, kept_in(model, graph, frozen=False), set(), "fire")
    assert set(why(told)) == set(graph.parameters) and "int8" in why(told)["2.weight"]


def test_a_graph_of_before_is_held_to_the_model_as_it_is():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    graph = rk.trace(model, torch.zeros(1, 4))
    model[0].weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
    for seed, target in enumerate((model, dict(model.state_dict()))):
        record = rk.apply_("full_reset", target, graph=graph, seed=seed)
        assert "int8" in why(record)["0.weight"] and record.changed == 14
    codes = scan(model)
    with pytest.raises(PlanError, match="when 0.weight was no tensor of plain floats"):
        rk.apply_("full_reset", nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), graph=codes)


def test_entries_of_a_state_dict_that_are_no_tensors_are_named():
    model = nn.Linear(4, 2)
    state = {**model.state_dict(), "packed": (torch.ones(2), None)}
    assert why(rk.apply_("full_reset", state, graph=scan(model)))["packed"] == "no tensor but a tuple"


def test_a_reference_must_hold_plain_floats_where_it_is_needed_and_only_there():
    model = with_codes()
    start = {name: 2 * tensor for name, tensor in net().state_dict().items()} | {"2.weight": torch.ones(7)}
    assert rk.apply_("full_reset", model, reference=start).changed  # the codes stay: their start is not asked for
    with pytest.raises(PlanError, match="plain floats in 2.weight"):
        rk.apply_("full_reset", net(), reference=with_codes())
