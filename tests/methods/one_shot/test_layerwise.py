"""Layerwise reinitialization: one round by hand, blocks, ablations, and a normalization that stays."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.inserted import is_standardized
from rekindle.errors import PlanError, SettingsError
from rekindle.methods.one_shot._blocks import find_blocks
from rekindle.methods.one_shot.layerwise import Layerwise, layerwise_rounds
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


def net():
    return nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)
    )


def old(seed=0):
    torch.manual_seed(seed)
    model = net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    model(batch(64, 4))  # statistics move
    return model


def batch(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_one_round_as_the_algorithm_says():
    model, start, x = old(), net().state_dict(), batch(64, 4)
    before = copy.deepcopy(model)
    record = rk.layerwise_(model, example=x, block=1, blocks=("2", "5"), reference=start, fresh="reference")
    # rescale (lines 5-9)
    scale = start["0.weight"].norm() / before[0].weight.norm()
    assert torch.allclose(model[0].weight, before[0].weight * scale, rtol=1e-5)
    assert torch.equal(model[0].bias, before[0].bias) and torch.equal(model[1].weight, before[1].weight)
    # normalize (lines 10-17): by hand, BatchNorm on the batch
    h = nn.functional.linear(x, model[0].weight, model[0].bias)
    z = ((h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt() * model[1].weight + model[1].bias).relu()
    assert torch.allclose(model[2].rekindle_mean, z.mean(), rtol=1e-4)
    assert torch.allclose(model[2].rekindle_std, z.std(correction=0), rtol=1e-4)
    out = model.train()[:3](x)
    assert abs(float(out.detach().mean())) < 1e-5 and float(out.detach().std(correction=0)) == pytest.approx(
        1, abs=1e-4
    )
    # reinitialize (line 18): everything above, from the reference
    for index in (3, 6):
        assert torch.equal(model[index].weight, start[f"{index}.weight"])
    assert any("blocks: 1 2, 2 5; this was a round of block 1" in notice for notice in record.notices)


def test_statistics_above_are_set_back_and_those_below_stay():
    model = old()
    below = model[1].running_mean.clone()
    rk.layerwise_(model, example=batch(64, 4), block=1)
    assert torch.equal(model[1].running_mean, below)
    assert not model[4].running_mean.any() and (model[4].running_var == 1).all() and (model[4].weight == 1).all()
    rk.layerwise_(model.train(), example=batch(64, 4), block=2)
    assert torch.equal(model[1].running_mean, below)


def test_a_reference_gives_norms_and_not_the_same_draw_in_every_round():
    model, start, heads = old(), net().state_dict(), []
    for one in layerwise_rounds(1, repeats=2):
        rk.apply_(one, model, example=batch(64, 4), reference=start)
        heads.append(model[6].weight.detach().clone())
    assert not torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], start["6.weight"])
    with pytest.raises(PlanError, match="pass reference="):
        rk.layerwise_(old(), example=batch(64, 4), fresh="reference")


def test_without_reference_the_norm_is_the_law_s():
    model = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 2))
    expected = float(model[0].weight.detach().norm())
    with torch.no_grad():
        model[0].weight.mul_(7)
    rk.layerwise_(model, example=batch(8, 300))
    assert float(model[0].weight.detach().norm()) == pytest.approx(expected, rel=0.01)


def test_weight_norm_is_rescaled_by_its_gain():
    model, x = ZOO["weight_norm_mlp"].build(), ZOO["weight_norm_mlp"].example()
    start = ZOO["weight_norm_mlp"].build().state_dict()
    with torch.no_grad():
        model.conv.parametrizations.weight.original0.mul_(3)
    rk.layerwise_(model, example=x, reference=start)
    now, wanted = (net.conv.weight.detach().norm() for net in (model, ZOO["weight_norm_mlp"].build()))
    assert float(now) == pytest.approx(float(wanted))


@pytest.mark.parametrize("switch", ["rescale", "normalize", "reinitialize"])
def test_each_part_can_be_left_out(switch):
    model, before = old(), old()
    rk.layerwise_(model, example=batch(64, 4), block=1, **{switch: False})
    assert torch.equal(model[0].weight, before[0].weight) == (switch == "rescale")
    assert is_standardized(model[2]) == (switch != "normalize")
    assert torch.equal(model[6].weight, before[6].weight) == (switch == "reinitialize")


def test_freezing_stops_what_is_below_and_only_that():
    model, x = old(), batch(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        model(x).square().sum().backward()
        optimizer.step()
    rk.layerwise_(model, optimizer, example=x, block=1, freeze=True)
    kept = {n: p.clone() for n, p in model.named_parameters()}
    for _ in range(2):
        model(x).square().sum().backward()
        optimizer.step()
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, kept[n])}
    assert moved == {f"{i}.{kind}" for i in (3, 4, 6) for kind in ("weight", "bias")}
    rk.layerwise_(model, optimizer, example=x, block=2, freeze=True)
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["6.weight", "6.bias"]


def test_a_second_round_updates_the_normalization_and_measures_before_it():
    model, x = old(), batch(64, 4)
    rk.layerwise_(model, example=x, block=1)
    first = float(model[2].rekindle_mean)
    with torch.no_grad():
        model[1].bias.add_(5)
    rk.layerwise_(model, example=x, block=1, repeat=2)
    assert len(model[2]._forward_hooks) == 1 and float(model[2].rekindle_mean) > first + 3
    assert abs(float(model[:3](x).mean())) < 1e-4


def test_rounds_in_order_with_other_draws_each():
    rounds = list(layerwise_rounds(("2", "5"), repeats=2, rescale=False))
    assert [(r.block, r.repeat) for r in rounds] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert rounds[0] == Layerwise(block=1, blocks=("2", "5"), rescale=False)
    model, heads = old(), []
    for one in rounds:
        rk.apply_(one, model, data=[(batch(64, 4), None)], example=batch(2, 4))
        heads.append(model[6].weight.detach().clone())
    assert len({tuple(h.flatten().tolist()) for h in heads}) == 4
    assert is_standardized(model[2]) and is_standardized(model[5])


def test_the_first_batch_of_the_data_is_measured():
    model, x = old(), batch(64, 4)
    rk.layerwise_(model, example=x, data=[(x + 3, torch.zeros(64)), (x, torch.zeros(64))], rescale=False)
    other = old()
    rk.layerwise_(other, example=x + 3, rescale=False)
    assert model[2].rekindle_std == other[2].rekindle_std


@pytest.mark.parametrize("name", [name for name in ZOO if name != "mlp_functional"])
def test_every_block_of_every_zoo_model(name):
    """What a block's output depends on keeps its direction, everything else is fresh, and the model still learns."""
    member = ZOO[name]
    if member.requires:
        pytest.importorskip(member.requires)
    example, graph = member.example(), graph_of(member)
    count = len(find_blocks(graph, member.build()))
    for block in range(1, count + 1):
        model = member.build()
        record = rk.layerwise_(model, example=example, graph=graph, block=block, reference=member.build, seed=1)
        drawn = {row.tensor for row in record.rows if "above" in row.reason}
        scaled = {row.tensor for row in record.rows if "norm" in row.reason}
        assert scaled and not drawn & scaled
        if block == count:  # the last block is under nothing but the rest
            assert scaled >= {w.tensor for w in graph.weights if w.gain is None and w.role == "input"}
        args, kwargs = ((), example) if isinstance(example, dict) else ((example,), {})
        out = model(*args, **kwargs)
        assert torch.isfinite(getattr(out, "logits", out)).all()
        rk.trace(model, example)


def test_parallel_branches_keep_what_was_kept_before():
    model, x = ZOO["dueling"].build(), ZOO["dueling"].example()
    blocks = ("conv2", "value_hidden", "advantage_hidden")
    record = rk.layerwise_(model, example=x, block=3, blocks=blocks)
    drawn = {row.tensor for row in record.rows if "above" in row.reason}
    assert drawn == {"value.weight", "value.bias", "advantage.weight", "advantage.bias"}


def test_a_module_that_is_called_twice_is_said_to_be():
    model, x = Functional().eval(), batch(64, 4)
    record = rk.layerwise_(model, example=x, blocks=("act",))
    assert any("act is called 2 times; each is normalized" in notice for notice in record.notices)
    assert is_standardized(model.act)


class Functional(nn.Module):
    """The paper's blocks without a module behind the activation: a function, or one module at several places."""

    def __init__(self, activation="shared"):
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.fc2, self.bn2 = nn.Linear(6, 5), nn.BatchNorm1d(5)
        self.side, self.head = nn.Linear(5, 3), nn.Linear(5, 3)
        self.act = nn.ReLU(inplace=activation == "inplace")
        self.of = nn.functional.relu if activation == "function" else self.act

    def forward(self, x):
        x = self.of(self.bn1(self.fc1(x)))
        x = self.of(self.bn2(self.fc2(x)))
        return self.head(x) + self.side(x)


@pytest.mark.parametrize("activation", ["function", "shared", "inplace"])
def test_without_a_module_behind_the_activation_it_stands_before_all_readers(activation):
    model, x = Functional(activation), batch(64, 4)
    for settings in layerwise_rounds(2):
        record = rk.apply_(settings, model, example=x)
    assert [(one.module, one.put.side) for one in record.surgery] == [("head", "before"), ("side", "before")]
    assert [n for n, m in model.named_modules() if is_standardized(m, "before")] == ["fc2", "side", "head"]
    assert not any(is_standardized(m) for m in model.modules())
    # by hand: (relu - mean) / std of what was measured, and no other ReLU behind it
    model.train()
    one = model.bn1(model.fc1(x)).relu()
    two = model.bn2(nn.functional.linear((one - one.mean()) / one.std(correction=0), *model.fc2.parameters())).relu()
    two = (two - two.mean()) / two.std(correction=0)
    expected = nn.functional.linear(two, *model.head.parameters()) + nn.functional.linear(two, *model.side.parameters())
    assert torch.allclose(model(x), expected, atol=1e-4) and bool((two < 0).any())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in Functional().named_parameters()]


def test_a_second_round_before_the_readers_updates_and_undo_goes_back():
    model, x = Functional(), batch(64, 4)
    before = copy.deepcopy(model.state_dict())
    first = rk.layerwise_(model, example=x)
    mean = float(model.fc2.rekindle_input_mean)
    with torch.no_grad():
        model.bn1.bias.add_(5)
    second = rk.layerwise_(model, example=x, repeat=2)
    assert len(model.fc2._forward_pre_hooks) == 1 and float(model.fc2.rekindle_input_mean) > mean + 3
    second.undo()
    assert float(model.fc2.rekindle_input_mean) == mean
    with torch.no_grad():
        model.bn1.bias.sub_(5)
    first.undo(force=True)
    assert not model.fc2._forward_pre_hooks and model.state_dict().keys() == before.keys()


def test_a_normalization_before_readers_is_restored_copied_and_compiled():
    model, x = Functional("function").eval(), batch(64, 4)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    for settings in layerwise_rounds(2):
        rk.apply_(settings, model, example=x)
    assert torch.equal(compiled(x), model(x))
    fresh = Functional("function").eval()
    rk.restore_(fresh, model.state_dict())
    rk.restore_(fresh, model.state_dict())
    assert all(len(fresh.get_submodule(n)._forward_pre_hooks) == 1 for n in ("fc2", "head", "side"))
    for other in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
        other.head.rekindle_input_mean.add_(1)  # its own, not the first model's
        assert not torch.equal(other(x), model(x))
    rk.trace(model, x)


def test_logits_are_normalized_only_where_asked_for():
    member = ZOO["mlp"]
    model, blocks = member.build(), ("layers.0", "layers.1", "layers.2")
    record = rk.layerwise_(model, example=member.example(), blocks=blocks, block=3)
    assert any("it is the logits: not normalized; logits=True" in skip.reason for skip in record.skips)
    assert not record.surgery and {row.tensor for row in record.rows} == {f"{path}.weight" for path in blocks}
    record = rk.layerwise_(model, example=member.example(), blocks=blocks, block=3, logits=True)
    assert [(one.module, one.put.side) for one in record.surgery] == [("layers.2", "after")]
    out = model(member.example()).detach()
    assert abs(float(out.mean())) < 1e-5 and float(out.std(correction=0)) == pytest.approx(1, abs=1e-4)


def test_one_that_stands_after_the_module_already_is_updated_there():
    """A state dict of an earlier version has it before the activation; a second one behind would be two."""
    member = ZOO["mlp"]
    model, x = member.build(), member.example()
    state = dict(model.state_dict()) | {
        "layers.0.rekindle_mean": torch.tensor(3.0),
        "layers.0.rekindle_std": torch.ones(()),
    }
    rk.restore_(model, state)
    record = rk.layerwise_(model, example=x)
    assert [(one.module, one.put.side) for one in record.surgery] == [("layers.0", "after")]
    assert float(model.layers[0].rekindle_mean) != 3 and not model.layers[1]._forward_pre_hooks


def test_where_no_reader_can_be_told_it_is_not_normalized_and_the_record_says_so():
    member = ZOO["shared_module"]
    record = rk.layerwise_(member.build(), example=member.example(), block=1)
    (skip,) = [skip for skip in record.skips if skip.tensor == "stem"]
    assert "shared, which also reads something else" in skip.reason and not record.surgery
    assert any("above" in row.reason for row in record.rows)  # the rest of the round happens


def normalized():
    model, x = old(), batch(64, 4)
    for settings in layerwise_rounds(2):
        rk.apply_(settings, model, example=x)
    return model.eval(), x


def test_names_stay_and_a_state_dict_carries_it():
    model, x = normalized()
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in net().named_parameters()]
    fresh = net().eval()
    with pytest.raises(RuntimeError, match="2.rekindle_mean"):
        fresh.load_state_dict(model.state_dict())
    rk.restore_(fresh, model.state_dict())
    assert torch.equal(model(x), fresh(x)) and len(fresh[2]._forward_hooks) == 1
    rk.restore_(fresh, model.state_dict())
    assert torch.equal(model(x), fresh(x)) and len(fresh[2]._forward_hooks) == 1
    plain = net()
    rk.restore_(plain, net().state_dict())
    assert not plain[2]._forward_hooks


def test_a_new_process_gives_the_same_outputs(tmp_path):
    model, x = normalized()
    torch.save({"model": model.state_dict(), "x": x, "y": model(x).detach()}, tmp_path / "saved.pt")
    code = """
import sys, torch, rekindle as rk
from torch import nn
saved = torch.load(sys.argv[1], weights_only=True)
model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(),
                      nn.Linear(5, 3))
rk.restore_(model, saved["model"])
assert torch.equal(model.eval()(saved["x"]), saved["y"])
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "saved.pt")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_copies_pickles_and_whole_models_keep_it():
    model, x = normalized()
    whole = io.BytesIO()
    torch.save(model, whole)
    whole.seek(0)
    others = copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(whole, weights_only=False)
    for other in others:
        assert torch.equal(model(x), other(x))
        other[2].rekindle_mean.add_(1)  # its own, not the first model's
        assert not torch.equal(model(x), other(x))
    assert model.to(torch.float64)(x.double()).dtype == torch.float64


def test_a_compiled_model_sees_it():
    model, x = old().eval(), batch(64, 4)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    record = rk.layerwise_(model, example=x)
    assert torch.equal(compiled(x), model(x))
    record.undo()
    assert torch.equal(compiled(x), model(x))


def test_a_constant_output_is_only_shifted():
    model = old()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(3.0)
    record = rk.layerwise_(model, example=batch(64, 4), block=1, blocks=("0", "3"), reinitialize=False)
    assert any("0 is constant" in notice for notice in record.notices)
    assert model[0].rekindle_mean == 3 and model[0].rekindle_std == 1 and not model[0].weight.any()


def test_refusals():
    x = batch(64, 4)
    with pytest.raises(PlanError, match="neither data= nor example="):
        rk.layerwise_(net(), blocks=("2",))
    with pytest.raises(PlanError, match=r"block: 1 to 2 \(1 2, 2 5\)"):
        rk.layerwise_(net(), example=x, block=3)
    with pytest.raises(PlanError, match="path of a module"):
        rk.layerwise_(net(), example=x, blocks=("nowhere",))
    with pytest.raises(PlanError, match="a ModuleList itself does not"):
        rk.layerwise_(ZOO["mlp"].build(), example=ZOO["mlp"].example(), blocks=("layers",))
    with pytest.raises(PlanError, match="more than one element"):
        rk.layerwise_(net(), data=[x[:1]], example=x)
    with pytest.raises(SettingsError):
        Layerwise(block=0)
    with pytest.raises(PlanError, match="the model itself"):
        rk.apply_("layerwise", dict(net().state_dict()), graph=rk.trace(net(), x), data=[x])
    with pytest.warns(rk.NoEffectWarning, match="no module inside"):
        rk.layerwise_(ZOO["mlp_functional"].build(), example=ZOO["mlp_functional"].example())
