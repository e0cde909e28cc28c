"""The pass over the data: what it refuses, and that it leaves no trace."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rekindle.errors import EditError, PlanError
from rekindle.graph.scan import scan
from rekindle.observe import average_gradients
from rekindle.testing.aged import bits, hooks, same


def net():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 3))


def pairs(count=3, size=8):
    random = torch.Generator().manual_seed(0)
    return [(torch.randn(size, 4, generator=random), torch.randint(3, (size,), generator=random)) for _ in range(count)]


def gather(model, data, loss=None, alpha=0.3, seed=0):
    return average_gradients(model, data, loss, alpha=alpha, graph=scan(model), seed=seed)


@pytest.mark.parametrize("training", [True, False])
def test_no_trace(training):
    model = net().train(training)
    model[1].eval()
    model(torch.randn(4, 4)).sum().backward()
    fired = []
    model[0].weight.register_post_accumulate_grad_hook(lambda p: fired.append(p))
    before, grads = bits(model), {n: p.grad.clone() for n, p in model.named_parameters()}
    identity = [(id(t), t._version) for t in (*model.parameters(), *model.buffers())]
    modes, hooked, state = [m.training for m in model.modules()], hooks(model), torch.get_rng_state()
    loader = torch.utils.data.DataLoader(pairs(1, 32)[0][0], batch_size=8, shuffle=True)
    gather(model, loader, lambda m, x: m(x).square().mean())
    same(before, bits(model), "changed:")
    same(grads, {n: p.grad for n, p in model.named_parameters()}, "gradient changed:")
    assert identity == [(id(t), t._version) for t in (*model.parameters(), *model.buffers())]
    assert modes == [m.training for m in model.modules()] and hooked == hooks(model) and not fired
    assert torch.equal(state, torch.get_rng_state())


def test_an_error_leaves_no_trace_either():
    model = net().eval()
    before, buffers = bits(model), [id(t) for t in model.buffers()]

    def breaks(m, batch):
        m(batch[0])
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gather(model, pairs(), breaks)
    same(before, bits(model), "changed:")
    assert buffers == [id(t) for t in model.buffers()] and not any(m.training for m in model.modules())


def test_the_model_runs_as_in_training():
    def run(model, seed=0):
        modes = []
        found = gather(model, pairs(), lambda m, b: modes.append([x.training for x in m]) or m(b[0]).sum(), seed=seed)
        return modes[0], found.average["0.weight"]

    model = net().eval()
    modes, first = run(model)
    assert all(modes)
    assert torch.equal(first, run(model)[1]) and not torch.equal(first, run(model, seed=1)[1])  # dropout by seed
    model.train()
    model[1].eval()  # frozen on purpose: stays so
    assert run(model)[0] == [True, False, True, True, True]


def test_against_backward_with_the_default_loss():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    mean = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    found = gather(model, pairs(), alpha=0.2)
    losses = []
    for x, y in pairs():
        twin = copy.deepcopy(model)
        loss = cross_entropy(twin(x), y)
        loss.backward()
        losses.append(loss.item())
        mean = {n: 0.8 * mean[n] - 0.2 * p.grad for n, p in twin.named_parameters()}
    for name, value in mean.items():
        assert torch.allclose(found.average[name], value, atol=1e-7)
    assert found.batches == 3 and found.loss == pytest.approx(sum(losses) / 3)


def test_the_loss_of_uneven_batches_is_that_of_all_samples_at_once():
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), torch.randn(11, 4), torch.randint(3, (11,))
    found = gather(model, [(x[:8], y[:8]), (x[8:10], y[8:10]), (x[10:], y[10:])])
    assert found.loss == pytest.approx(float(cross_entropy(model(x), y).detach()))


def test_tied_weights_once_and_unused_batches_count_as_zero():
    model = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.Linear(3, 1, bias=False)])
    model[1].weight = model[0].weight

    def loss(m, batch):
        x, last = batch
        h = m[1](m[0](x))
        return m[2](h).sum() if last else h.sum()

    x = torch.ones(1, 3)
    found = gather(model, [(x, True), (x, False)], loss, alpha=0.5)
    assert set(found.average) == {"0.weight", "2.weight"}
    alone = gather(model, [(x, True)], loss, alpha=0.5)
    assert torch.allclose(found.average["2.weight"], 0.5 * alone.average["2.weight"])


def test_half_precision_is_averaged_in_float32_and_sparse_gradients_are_taken():
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2))
    found = gather(model.to(torch.bfloat16), [torch.tensor([[1, 2]])], lambda m, x: m(x).sum())
    assert {t.dtype for t in found.average.values()} == {torch.float32}
    assert found.average["0.weight"].layout == torch.strided and not found.average["0.weight"][0].any()


BAD_DATA = [
    ([], "at least one batch"),
    (iter(()), "at least one batch"),
    (torch.ones(2, 4), "one batch"),
    ((torch.ones(2, 4), torch.zeros(2)), "one batch"),
    ({"x": torch.ones(2, 4)}, "one batch"),
    (7, "iterable of batches"),
]


@pytest.mark.parametrize(("data", "message"), BAD_DATA, ids=range(len(BAD_DATA)))
def test_bad_data(data, message):
    with pytest.raises(PlanError, match=message):
        gather(net(), data, lambda m, x: m(x).sum())


BAD_LOSS = [
    (nn.CrossEntropyLoss(), "takes outputs and targets"),
    (cross_entropy, "takes outputs and targets"),
    (3, r"\(model, batch\)"),
    (lambda m, b: m(b[0]), r"shape \(8, 3\) for batch 0"),
    (lambda m, b: 1.0, "one number"),
    (lambda m, b: m(b[0]).detach().sum(), "depends on none"),
    (lambda m, b: m(b[0]).sum() * float("nan"), "a loss of nan for batch 0"),
]


@pytest.mark.parametrize(("loss", "message"), BAD_LOSS, ids=range(len(BAD_LOSS)))
def test_bad_losses(loss, message):
    with pytest.raises(PlanError, match=message):
        gather(net(), pairs(), loss)


def test_nan_weights_are_told_from_nan_losses():
    model = net()
    with torch.no_grad():
        model[4].bias[1] = float("nan")
    with pytest.raises(EditError, match=r"finite values in 4\.bias"):
        gather(model, pairs())


def test_a_gradient_that_is_not_finite():
    with pytest.raises(PlanError, match="a gradient of weight"):
        gather(nn.Linear(2, 1, bias=False), [torch.zeros(1, 2)], lambda m, x: (m.weight * 0).sum().sqrt())


def test_a_batch_of_one():
    with pytest.raises(PlanError, match="drop_last"):
        gather(net(), [*pairs(), (torch.ones(1, 4), torch.zeros(1).long())])
