"""Models as subjects of metrics."""

import torch
from torch import nn

import rekindle as rk
from rekindle.graph.scan import scan
from rekindle.metrics.reading import MetricInputs
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of

KINDS = ["mlp", "cnn_bn", "grouped_conv", "mobilenet", "conv_transpose", "gpt2", "vit_mha", "resnet_basic", "llama"]


def subject_of(model, example=None, reference=None):
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return MetricInputs(tensors, scan(model) if example is None else rk.trace(model, example), reference=reference)


def zoo_subject(name, moved=None, model=None):
    """A zoo model, perhaps one that was changed; with `moved`, the reference is its weights plus noise of that size."""
    model = model or ZOO[name].build()
    subject = MetricInputs({**dict(model.named_parameters()), **dict(model.named_buffers())}, graph_of(ZOO[name]))
    if moved is None:
        return subject
    torch.manual_seed(0)
    reference = {k: v.detach() + moved * torch.randn_like(v) for k, v in model.named_parameters()}
    return MetricInputs(subject.tensors, subject.graph, reference=reference)


class Residual(nn.Module):
    """Two branches on a stream without any normalization."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(5, 6)
        self.up = nn.ModuleList([nn.Linear(6, 4), nn.Linear(6, 7)])
        self.down = nn.ModuleList([nn.Linear(4, 6), nn.Linear(7, 6)])
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.stem(x)
        for up, down in zip(self.up, self.down, strict=True):
            x = x + down(up(x).relu())
        return self.head(x)


def plain_matrices(model, name):
    """Every matrix of a layer by loops over modules, without our views: linear, (grouped, transposed) convolution."""
    layer = model.get_submodule(name.rpartition(".")[0])
    weight = layer.weight.detach()
    if type(layer).__name__ == "Conv1D":
        return [weight.T]
    if weight.dim() == 2:
        return [weight]
    transposed = isinstance(layer, nn.ConvTranspose2d)
    found = []
    for part in weight.chunk(layer.groups):  # both kinds store the groups along the first dimension
        for row in range(weight.shape[2]):
            for column in range(weight.shape[3]):
                slice_ = part[:, :, row, column]
                found.append(slice_.T if transposed else slice_)
    return found
