"""Recalibration against concatenated activations, and against torch's own cumulative average."""

import copy

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import EditError, PlanError
from rekindle.testing import ZOO
from rekindle.testing.aged import bits, hooks, same

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
WITH_STATISTICS = [n for n, m in ZOO.items() if any(isinstance(x, BATCH_NORMS) for x in m.build().modules())]


def batches(count, *shape):
    random = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=random) * (k + 1) for k in range(count)]


def norms(model):
    return [m for m in model.modules() if isinstance(m, BATCH_NORMS)]


@pytest.mark.parametrize("name", WITH_STATISTICS)
def test_one_batch_gives_mean_and_unbiased_variance_of_the_activations(name):
    model, x = ZOO[name].build().eval(), ZOO[name].example()
    record = rk.recalibrate_(model, [x])
    twin, seen = copy.deepcopy(model).train(), {}
    for layer in norms(twin):
        layer.register_forward_pre_hook(lambda m, args: seen.setdefault(m, args[0].detach()))
    twin(x)
    for layer, copied in zip(norms(model), norms(twin), strict=True):
        values = seen[copied].transpose(0, 1).flatten(1)  # [channels, everything else]
        assert torch.allclose(layer.running_mean, values.mean(1), atol=1e-5)
        assert torch.allclose(layer.running_var, values.var(1), rtol=1e-4, atol=1e-6)
        assert int(layer.num_batches_tracked) == 1
    assert len(record.rows) == 3 * len(norms(model)) and not any(m.training for m in model.modules())


@pytest.mark.parametrize("name", WITH_STATISTICS)
def test_several_batches_as_torch_does_without_momentum(name):
    model = ZOO[name].build()
    data = [ZOO[name].example() * k + k for k in (1.0, 2.0, 0.5)]
    twin = copy.deepcopy(model)
    for layer in norms(twin):
        layer.reset_running_stats()
        layer.momentum = None
    with torch.no_grad():
        for x in data:
            twin(x)
    rk.recalibrate_(model, data)
    for layer, other in zip(norms(model), norms(twin), strict=True):
        assert torch.allclose(layer.running_mean, other.running_mean, atol=1e-6)
        assert torch.allclose(layer.running_var, other.running_var, rtol=1e-5)
        assert int(layer.num_batches_tracked) == int(other.num_batches_tracked) == 3
        assert layer.momentum == 0.1


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(3), (6, 3)),
        (nn.BatchNorm1d(3), (6, 3, 4)),
        (nn.BatchNorm2d(3, momentum=None), (4, 3, 2, 2)),
        (nn.BatchNorm3d(3, affine=False), (4, 3, 2, 2, 2)),
        (nn.SyncBatchNorm(3), (4, 3, 2, 2)),
    ],
    ids=str,
)
def test_every_kind(layer, shape):
    data = batches(2, *shape)
    rk.recalibrate_(layer, data)
    channels = [x.transpose(0, 1).flatten(1) for x in data]
    assert torch.allclose(layer.running_mean, torch.stack([c.mean(1) for c in channels]).mean(0), atol=1e-6)
    assert torch.allclose(layer.running_var, torch.stack([c.var(1) for c in channels]).mean(0), rtol=1e-5)


def test_instance_norm_with_statistics():
    layer, (x,) = nn.InstanceNorm1d(3, track_running_stats=True), batches(1, 4, 3, 5)
    rk.recalibrate_(layer, [x])
    assert torch.allclose(layer.running_mean, x.mean((0, 2)), atol=1e-6)
    assert torch.allclose(layer.running_var, x.var(2).mean(0), rtol=1e-5)


def test_after_an_edit_evaluation_agrees_with_training_again():
    model, x = ZOO["cnn_bn"].build(), ZOO["cnn_bn"].example()
    record = rk.fire_(model, example=x)
    assert any("rk.recalibrate_(model, data)" in notice for notice in record.notices)
    with torch.no_grad():
        model.train()
        wanted = copy.deepcopy(model)(x)
        model.eval()
        before = (model(x) - wanted).norm()
        rk.recalibrate_(model, [x])
        assert (model(x) - wanted).norm() < 0.1 * before  # all that is left is n against n - 1


def test_nothing_but_the_statistics_changes_and_undo_brings_them_back():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    model[0](torch.ones(1, 3)).sum().backward()
    grad = model[0].weight.grad.clone()
    before, state, hooked = bits(model), torch.get_rng_state(), hooks(model)
    identity = [id(t) for t in (*model.parameters(), *model.buffers())]
    record = rk.recalibrate_(model, batches(3, 8, 3))
    after = bits(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"{n}.{b}" for n in (1, 4) for b in ("running_mean", "running_var", "num_batches_tracked")}
    assert identity == [id(t) for t in (*model.parameters(), *model.buffers())]
    assert torch.equal(state, torch.get_rng_state()) and hooked == hooks(model)
    assert torch.equal(grad, model[0].weight.grad) and not any(m.training for m in model.modules())
    assert "recalibrate_ over 3 batches" in str(record)
    record.undo()
    same(before, bits(model), "not undone:")


def test_forms_of_batches_and_their_number():
    def made(data, **more):
        model = nn.BatchNorm1d(2)
        rk.recalibrate_(model, data, **more)
        return model.running_mean

    a, b = batches(2, 5, 2)
    label = torch.zeros(5)
    for data in ([a], [(a, label)], [[a, label]], [{"input": a}], [((a,), label)], iter([a])):
        assert torch.equal(made(data), made([a]))
    assert torch.equal(made([a, b], batches=1), made([a])) and not torch.equal(made([a, b]), made([a]))
    with pytest.raises(PlanError, match="at least 1"):
        made([a], batches=0)
    with pytest.raises(PlanError, match="at least one batch"):
        made([])
    with pytest.raises(PlanError, match="one batch"):
        made(a)


def test_a_layer_that_no_batch_reaches_keeps_its_statistics():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.BatchNorm1d(2), nn.BatchNorm1d(2)

        def forward(self, x):
            return self.used(x)

    model = Branch()
    nn.init.constant_(model.unused.running_mean, 7)
    record = rk.recalibrate_(model, batches(1, 4, 2))
    assert (model.unused.running_mean == 7).all() and [s.tensor for s in record.skips] == ["unused"]


def test_models_without_statistics_warn():
    with pytest.warns(rk.NoEffectWarning, match="no running statistics"):
        assert rk.recalibrate_(nn.Linear(3, 2), [torch.ones(2, 3)]).rows == ()
    with pytest.warns(rk.NoEffectWarning):
        rk.recalibrate_(nn.BatchNorm1d(3, track_running_stats=False), [torch.randn(2, 3)])


def test_what_cannot_be_done_changes_nothing():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    before = bits(model)
    with pytest.raises(EditError):
        rk.recalibrate_(model, [torch.full((2, 3), float("nan"))])
    with pytest.raises(PlanError, match="drop_last"):
        rk.recalibrate_(model, [torch.ones(2, 3), torch.ones(1, 3)])
    same(before, bits(model), "changed:")
    with pytest.raises(PlanError, match="a model that can be run"):
        rk.recalibrate_(model.state_dict(), [torch.ones(2, 3)])
