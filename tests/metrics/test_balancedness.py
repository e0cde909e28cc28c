"""Balancedness by hand, and rescaled networks against their own outputs."""

import math

import pytest
import torch
from torch import nn

from rekindle.graph.unit_graph import UnitGraph
from rekindle.kernels.balance import entrywise_norm, least_chain
from rekindle.metrics.balancedness import balancedness, measure
from rekindle.metrics.reading import MetricInputs
from rekindle.testing import ZOO
from tests.metrics.subjects import Residual, subject_of, zoo_subject


def test_by_hand():
    assert balancedness([torch.tensor([[4.0]]), torch.tensor([[1.0]])]) == pytest.approx(math.sqrt(17 / 8))
    dead = [torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0, 5.0]])]
    assert balancedness(dead) == pytest.approx(1.0), "a dead unit's weights stay out of the quotient"


@pytest.mark.parametrize("powers", [(2.0, 2.0), (1.0, 2.0), (3.0, 1.5)])
def test_it_is_the_norm_over_the_least_norm(powers):
    weights = [torch.randn(4, 3).exp(), torch.randn(2, 4).exp()]
    least = entrywise_norm(least_chain(weights, *powers), *powers)
    assert balancedness(weights, *powers) == pytest.approx(entrywise_norm(weights, *powers) / least)


def rescaled(model, graph: UnitGraph, factors):
    """The model with the factors of a reading put in: rows, biases, scales and shifts times a, columns over a."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for group in graph.groups:
        if group.name in factors:
            a = torch.tensor(factors[group.name], dtype=torch.float32)[:, None, None]
            norms = [slot for slot in group.norms if slot.kind in ("scale", "shift")]
            for slot in norms or group.incoming:
                state[slot.tensor] = slot.where.write(state[slot.tensor], slot.where.read(state[slot.tensor]) * a)
            for slot in group.outgoing:
                state[slot.tensor] = slot.where.write(state[slot.tensor], slot.where.read(state[slot.tensor]) / a)
    model.load_state_dict(state)
    return model


NAMES = [name for name in ZOO if name not in ("weight_norm_mlp", "gpt", "gpt2", "llama", "mixer", "rms_norm_mlp")]
NAMES += ["gpt2", "llama"]


@pytest.mark.parametrize("name", [*NAMES, "residual"])
def test_the_rescaled_network_computes_the_same_and_is_balanced(name):
    torch.manual_seed(0)
    model = Residual() if name == "residual" else ZOO[name].build()
    example = torch.randn(4, 5) if name == "residual" else ZOO[name].example()
    subject = subject_of(model.eval(), example)
    reading = measure(subject)
    run = lambda: model(**example) if isinstance(example, dict) else model(example)  # noqa: E731
    with torch.no_grad():
        before = run()
        rescaled(model, subject.graph, reading.details["factors"])
        after = run()
    before, after = (getattr(each, "logits", each) for each in (before, after))
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-4 * float(before.abs().max()))
    again = measure(MetricInputs(subject.tensors, subject.graph))
    assert again.summary == pytest.approx(1.0, abs=1e-5) and reading.summary >= again.summary - 1e-6
    assert all(part == pytest.approx(1.0, abs=1e-4) for part in again.parts.values())


def test_a_network_of_layers_equals_the_plain_formula():
    subject = zoo_subject("mlp")
    weights = [subject.tensors[f"layers.{i}.weight"].detach() for i in range(3)]
    assert measure(subject).summary == pytest.approx(balancedness(weights), rel=1e-5)


def test_weight_norm_is_multiplied_out():
    subject = zoo_subject("weight_norm_mlp")
    plain = nn.Sequential(nn.Conv2d(3, 7, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(28, 11), nn.ReLU())
    plain.append(nn.Linear(11, 3))
    built = ZOO["weight_norm_mlp"].build()
    for layer, source in ((plain[0], built.conv), (plain[4], built.fc), (plain[6], built.head)):
        layer.weight.data = source.weight.detach()
    assert measure(subject).summary == pytest.approx(
        measure(subject_of(plain, torch.zeros(1, 3, 6, 6))).summary, rel=1e-5
    )


def test_what_cannot_be_rescaled_is_named():
    left_out = measure(zoo_subject("gpt")).details["left_out"]
    assert "tied" in left_out["wte"] and "gelu" in left_out["h.0.mlp.c_fc"]
    assert measure(zoo_subject("rms_norm_mlp")).summary == 1.0


def test_layers_that_drift_apart():
    """Definition 2; see `kernels.balance.layer_balance`."""
    subject = zoo_subject("mlp")
    reference = {name: tensor.detach().clone() for name, tensor in subject.tensors.items()}
    reference["layers.1.weight"] *= 2
    drift = measure(MetricInputs(subject.tensors, subject.graph, reference=reference)).details["b_t"]
    norms = [float(subject.tensors[f"layers.{i}.weight"].detach().norm()) for i in range(3)]
    old = [norms[0], 2 * norms[1], norms[2]]
    for i, name in enumerate(("layers.0.weight | layers.1.weight", "layers.1.weight | layers.2.weight")):
        small, large = sorted((i, i + 1), key=lambda layer: old[layer])
        assert drift[name] == pytest.approx(abs(norms[large] / norms[small] - old[large] / old[small]), rel=1e-5)
    assert "b_t" not in measure(subject).details


def test_a_weight_from_a_group_to_itself_does_not_swing():
    """Two units that feed each other, 4 one way and 1 back: full steps would exchange the two for ever."""
    model = ZOO["shared_module"].build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-3)
        model.shared.weight[0, 1], model.shared.weight[1, 0] = 4.0, 1.0
    assert measure(zoo_subject("shared_module", model=model)).summary == pytest.approx(math.sqrt(17 / 8), rel=1e-3)
