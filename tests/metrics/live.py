"""Live subjects for metrics that run the model."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rekindle.graph import trace
from rekindle.graph.modules import tensors_of
from rekindle.metrics.features import gather_features
from rekindle.metrics.reading import MetricInputs


def classification(model, batch):
    return cross_entropy(model(batch[0]), batch[1])


def live(model, batches, *, loss=classification, reference=None, seed=0, graph=None):
    graph = graph or trace(model, batches[0][0])
    features = gather_features(model, graph, list(batches), seed=seed)
    return MetricInputs(tensors_of(model), graph, reference, features, model, tuple(batches), loss, seed)


def tiny(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def vectors(count=3, size=8, seed=1):
    random = torch.Generator().manual_seed(seed)
    return [(torch.randn(size, 4, generator=random), torch.randint(3, (size,), generator=random)) for _ in range(count)]
