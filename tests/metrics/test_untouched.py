"""Whatever is read, the user's model is the same bit for bit: values, modes, gradients, hooks, generators."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rekindle.errors import PlanError
from rekindle.metrics import trainability
from rekindle.metrics.registry import metric
from rekindle.testing import ZOO
from rekindle.testing.aged import aged, bits, hooks, same
from tests.metrics.live import live, tiny, vectors

KEYS = ["dormant", "zero_activation", "srank", "effective_rank", "stable_rank", "feature_covariance", "fisher_score"]
KEYS += ["hessian_top", "sharpness", "margin", "weight_size", "gradient_norm", "trainability"]


def last_dimension(model, batch):
    return cross_entropy(model(batch[0]).flatten(0, -2), batch[1].flatten())


def state(model):
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    tensors = {**model._parameters, **dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "tensors": {name: (id(t), t.data_ptr(), t._version, t.requires_grad) for name, t in tensors.items()},
        "grads": {name: id(p.grad) for name, p in model.named_parameters() if p.grad is not None},
        "modes": [module.training for module in model.modules()],
        "hooks": hooks(model),
        "random": torch.get_rng_state().tolist(),
        "switches": (torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()),
    }, {**bits(model), **{f"grad of {name}": grad for name, grad in grads.items()}}


@pytest.mark.parametrize(("name", "classes"), [("cnn_bn", 5), ("vit_mha", 7), ("gpt", 17)])
def test_every_metric_leaves_the_model_alone(name, classes, monkeypatch):
    monkeypatch.setattr(trainability, "probe", lambda subject: PROBE(subject, steps=2, repeats=2))
    model, graph, _ = aged(ZOO[name])
    model.train()
    next(module for module in list(model.modules())[2:]).eval()  # one part is frozen on purpose
    model.register_forward_hook(lambda *_: None)
    example = ZOO[name].example()
    labels = torch.arange(example.numel() if name == "gpt" else 16).reshape(example.shape if name == "gpt" else (16,))
    batches = [(example, labels % classes)] * 2
    before, values = state(model)
    subject = live(model, batches, loss=last_dimension, reference=bits(model), graph=graph)
    read = []
    for key in KEYS:
        try:
            read.append(metric(key).measure(subject).metric)
        except PlanError:
            assert name == "gpt" and key in ("margin", "fisher_score")
        after, now = state(model)
        assert before == after, key
        same(values, now, f"{key} changed")
    assert len(read) == (11 if name == "gpt" else 13)


PROBE = trainability.probe


class Counting(nn.Module):
    """Writes into a buffer at each call, in evaluation mode too, and draws from the global generator."""

    def __init__(self):
        super().__init__()
        self.net = tiny()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.net(x + 0 * torch.rand(()))


def test_buffers_that_the_model_writes_itself_are_put_back():
    model, batches = Counting(), vectors()
    graph = live(tiny(), batches).graph
    before, values = state(model)
    subject = live(
        model, batches, graph=graph.__class__(**{**vars(graph), "groups": (), "weights": (), "_by_name": {}})
    )
    for key in ("margin", "gradient_norm", "sharpness", "hessian_top"):
        metric(key).measure(subject)
    after, now = state(model)
    assert {**before, "tensors": 0} == {**after, "tensors": 0}
    same(values, now, "something changed")


def test_an_error_on_the_way_leaves_nothing_behind():
    model, batches = tiny(), vectors()
    subject = live(model, batches)
    before, values = state(model)

    def failing(net, batch):
        net(batch[0])
        raise RuntimeError("the user's loss fails")

    for key in ("gradient_norm", "sharpness", "hessian_top", "trainability"):
        broken = subject.__class__(**{**vars(subject), "loss": failing})
        with pytest.raises(RuntimeError, match="the user's loss"):
            metric(key).measure(broken)
        after, now = state(model)
        assert before == after, key
        same(values, now, f"{key} changed")
