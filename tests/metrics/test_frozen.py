"""Frozen units against the paper's loops, and against what the interventions make on purpose."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.metrics.frozen import codes, frozen, measure, unit_counts
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of
from tests.metrics.subjects import Residual, subject_of, zoo_subject

LOW, HIGH = 0.009, 0.011
NORMALizED = {"cnn_bn", "mobilenet", "resnet_basic"}


@pytest.mark.parametrize(
    ("norms", "factors", "code"),
    [
        ((LOW, LOW, LOW), [1, 1, 1], 2),
        ((LOW, LOW, HIGH), [1, 1, 0], 1),
        ((HIGH, LOW, LOW), [0, 1, 1], 1),
        ((LOW, HIGH, LOW), [0, 0, 0], 0),  # not neighbors
        ((HIGH, LOW, HIGH), [0, 0, 0], 0),
    ],
)
def test_three_factors(norms, factors, code):
    cold = frozen(*(torch.tensor([norm]) for norm in norms))
    assert cold.tolist() == [[bool(f) for f in factors]] and codes(cold).tolist() == [code]


def test_two_factors_are_never_triple():
    row, column = torch.tensor([LOW, LOW, HIGH]), torch.tensor([LOW, HIGH, LOW])
    cold = frozen(row, None, column)
    assert cold.tolist() == [[True, True], [False, False], [False, False]] and codes(cold).tolist() == [1, 0, 0]


def test_strict_is_exactly_zero_in_scale_and_column():
    row, scale, column = torch.tensor([1.0, 0, 0, 0]), torch.tensor([0, 0, 0, 1e-9]), torch.tensor([0, 0, 1e-9, 0])
    cold = frozen(row, scale, column, strict=True)
    assert cold.int().tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]] and codes(cold).tolist() == [1, 2, 0, 0]


def paper_count(rows, scale, columns):
    """Counts of 6.2 by loops: sizes of the factors of double and of triple frozen units."""
    double = triple = 0
    for i in range(len(rows)):
        low = [rows[i].norm() < 1e-2, abs(scale[i]) < 1e-2, columns[:, i].norm() < 1e-2]
        sizes = [rows[i].numel(), 1, columns[:, i].numel()]
        counted = {k for a, b in ((0, 1), (1, 2)) if low[a] and low[b] for k in (a, b)}
        double += sum(sizes[k] for k in counted)
        triple += sum(sizes) if all(low) else 0
    return double, triple


def test_convolutions_with_batch_norm_equal_the_loops():
    model = ZOO["cnn_bn"].build()
    torch.manual_seed(0)
    with torch.no_grad():
        for unit in range(7):
            low = torch.rand(3) < 0.7
            model.conv1.weight[unit] *= 1e-4 if low[0] else 1
            model.bn1.weight[unit] *= 1e-4 if low[1] else 1
            model.conv2.weight[:, unit] *= 1e-4 if low[2] else 1
    reading = measure(zoo_subject("cnn_bn", model=model))
    double, triple = paper_count(model.conv1.weight, model.bn1.weight, model.conv2.weight)
    count = reading.details["counts"]["conv1"]
    assert 0 < triple < double and (count["double"], count["triple"]) == (double, triple)
    assert count["all"] == 7 * (27 + 1 + 99) and reading.parts["conv1"] == double / count["all"]


def test_after_a_flatten_a_unit_has_several_columns():
    model = ZOO["cnn_bn"].build()
    with torch.no_grad():
        model.bn2.weight[3] = 0
        model.fc.weight[:, 12:15] = 0  # three of the four columns of unit 3
    assert measure(zoo_subject("cnn_bn", model=model)).details["map"]["conv2"] == [0] * 11
    with torch.no_grad():
        model.fc.weight[:, 15] = 0
    reading = measure(zoo_subject("cnn_bn", model=model))
    assert reading.details["map"]["conv2"] == [0, 0, 0, 1, *[0] * 7]
    assert reading.details["counts"]["conv2"]["double"] == 1 + 20


@pytest.mark.parametrize("name", ["mlp", "grouped_conv", "gpt2", "weight_norm_mlp", *sorted(NORMALizED)])
def test_units_frozen_on_purpose_are_found_and_no_other(name):
    model = ZOO[name].build()
    assert measure(zoo_subject(name, model=model)).summary == 0
    record = rk.mutually_frozen_(model, probability=0.4, graph=graph_of(ZOO[name]), seed=3)
    wanted = int(record.notices[1].split()[0])
    for strict in (False, True):
        counts = unit_counts(measure(zoo_subject(name, model=model), strict=strict))
        assert sum(double + triple for _, double, triple in counts.values()) == wanted > 0
    reading = measure(zoo_subject(name, model=model))
    assert reading.details["fed"] == 0 and (reading.details["triple_summary"] > 0) == (name in NORMALizED)


def test_a_stream_needs_all_writers_and_readers_silent():
    model, example = Residual(), torch.zeros(1, 5)
    with torch.no_grad():
        model.stem.weight[2] = model.down[0].weight[2] = 0
        for reader in (*model.up, model.head):
            reader.weight[:, 2] = 0
    assert measure(subject_of(model, example)).details["map"]["stem"] == [0] * 6
    with torch.no_grad():
        model.down[1].weight[2] = 0
    reading = measure(subject_of(model, example))
    assert reading.details["map"]["stem"] == [0, 0, 1, 0, 0, 0]
    assert reading.details["counts"]["stem"]["double"] == (5 + 4 + 7) + (4 + 7 + 3)
    assert reading.details["fed"] == 1  # its biases are not zero: the readers still get a gradient


def test_a_bias_feeds_the_column_but_one_before_a_batch_norm_does_not():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[2].weight)
    nn.init.constant_(model[0].bias, 0.5)
    assert measure(subject_of(model, torch.zeros(1, 3))).details["fed"] == 2
    normed = nn.Sequential(model[0], nn.BatchNorm1d(2), nn.ReLU(), model[2])
    nn.init.zeros_(normed[1].weight)
    reading = measure(subject_of(normed.eval(), torch.zeros(2, 3)))
    assert reading.details["map"]["0"] == [2, 2] and reading.details["fed"] == 0


def test_scores_pair_rows_of_queries_and_keys():
    model = ZOO["gpt2"].build()
    with torch.no_grad():
        fused = model.transformer.h[0].attn.c_attn.weight  # in x out
        fused[:, 5] = fused[:, 12 + 5] = fused[:, 12 + 7] = 0
    units = measure(zoo_subject("gpt2", model=model)).details["map"]["transformer.h.0.attn.c_attn[qk]"]
    assert units == [0] * 5 + [1] + [0] * 6


def test_what_cannot_be_judged_is_named():
    assert set(measure(zoo_subject("mlp")).details["left_out"]) == {"layers.2"}
