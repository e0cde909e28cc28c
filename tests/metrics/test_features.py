"""One pass over the data: sums against slow loops over all activations, samples, labels, hooks."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.graph import trace
from rekindle.metrics import features as room
from rekindle.metrics.features import gather_features
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of, hooks
from tests.metrics.live import tiny, vectors


class Convolutional(nn.Module):
    """A convolution whose units are repeated by a flatten."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.head = nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.conv(x).relu().flatten(1))


def check(seen, rows):
    """Compare with [samples, units] looked at one number at a time."""
    rows = rows.detach().double()
    assert seen.samples == len(rows)
    for unit in range(rows.shape[1]):
        values = [float(row[unit]) for row in rows]
        assert float(seen.mean[unit]) == pytest.approx(sum(values) / len(values))
        assert float(seen.magnitude[unit]) == pytest.approx(sum(map(abs, values)) / len(values))
        assert float(seen.zeros[unit]) == sum(value == 0 for value in values) / len(values)
        for other in range(rows.shape[1]):
            product = sum(float(row[unit]) * float(row[other]) for row in rows) / len(rows)
            assert float(seen.moment[unit, other]) == pytest.approx(product, abs=1e-12)


def test_sums_are_those_of_a_loop_over_all_samples():
    model, batches = tiny(), vectors()
    found = gather_features(model, trace(model, batches[0][0]), batches)
    x = torch.cat([inputs for inputs, _ in batches])
    check(found.groups["0"], model[:2](x))
    check(found.groups["2"], model[:4](x))
    assert found.batches == 3 and set(found.unseen) == {"4"}


def test_positions_and_repeats_of_a_flatten_are_samples():
    torch.manual_seed(0)
    model, x = Convolutional(), torch.randn(5, 2, 4, 4)
    found = gather_features(model, trace(model, x), [x[:2], x[2:]])
    activation = model.conv(x).relu()  # [5, 3, 2, 2]
    rows = torch.stack([activation[n, :, i, j] for n in range(5) for i in range(2) for j in range(2)])
    check(found.groups["conv"], rows.detach())
    assert found.heads["head"].inputs.shape == (5, 12) and found.heads["head"].labels is None


def test_a_stream_is_seen_at_each_reader():
    member = ZOO["rms_norm_mlp"]
    found = gather_features(member.build(), graph_of(member), [member.example()])
    assert found.groups["embed"].samples == 3 * 16  # two blocks and the head


def test_scores_have_no_activation():
    member = ZOO["vit_separate"]  # keys are as wide as the stream, and must not be taken for what is seen there
    found = gather_features(member.build(), graph_of(member), [member.example()])
    assert "queries and keys" in found.unseen["blocks.0.attention.q"]
    assert "blocks.0.attention.v" in found.groups


def test_singular_values_are_those_of_the_feature_matrix():
    model, batches = tiny(), vectors()
    group = gather_features(model, trace(model, batches[0][0]), batches).groups["2"]
    rows = model[:4](torch.cat([x for x, _ in batches])).double()
    expected = torch.linalg.svdvals(rows) / len(rows) ** 0.5
    torch.testing.assert_close(group.spectrum, expected.detach(), rtol=1e-6, atol=1e-8)
    assert group.possible == 5


def test_too_many_units_are_sampled_for_the_moments_only(monkeypatch):
    monkeypatch.setattr(room, "UNITS", 4)
    model, batches = tiny(), vectors()
    group = gather_features(model, trace(model, batches[0][0]), batches, seed=3).groups["0"]
    rows = model[:2](torch.cat([x for x, _ in batches])).double()[:, group.chosen]
    assert len(group.chosen) == 4 and group.units == 6
    torch.testing.assert_close(group.moment, (rows.T @ rows / len(rows)).detach())


def test_head_inputs_come_with_their_labels(monkeypatch):
    monkeypatch.setattr(room, "HEAD_ROWS", 10)
    model, batches = tiny(), vectors()
    head = gather_features(model, trace(model, batches[0][0]), batches).heads["4"]
    every, labels = model[:4](torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])
    assert head.inputs.shape == (10, 5) and head.tensor == "4.weight"
    for row, label in zip(head.inputs, head.labels, strict=True):
        same = (every - row).abs().amax(1) < 1e-6
        assert bool((labels[same] == label).any()) and same.any()


def test_rows_of_two_networks_are_of_the_same_samples(monkeypatch):
    monkeypatch.setattr(room, "ROWS", 7)
    model, batches = tiny(), vectors()
    graph = trace(model, batches[0][0])
    doubled = {"0.weight": model[0].weight * 2, "0.bias": model[0].bias * 2}
    first, second = (gather_features(model, graph, batches, replaced=r).groups["0"] for r in (None, doubled))
    assert len(first.rows) == 7
    torch.testing.assert_close(second.rows, 2 * first.rows)


def test_margins_count_classes_on_maps_and_leave_out_what_is_ignored():
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Conv2d(3, 4, 1))
    x, labels = torch.randn(2, 2, 3, 3), torch.zeros(2, 3, 3, dtype=torch.long)
    labels[0, 0, 0] = -100
    found = gather_features(model, trace(model, x), [(x, labels)])
    assert found.answers == 17 and len(found.margins) == 17
    assert found.heads["2"].inputs.shape == (18, 3) and len(found.heads["2"].labels) == 18


def test_labels_of_images_go_with_all_positions_of_a_convolutional_head():
    model = nn.Sequential(nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 2, 3).contiguous()  # an image's own number everywhere
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(0.0)
    found = gather_features(model, trace(model, images), [(images, torch.tensor([0, 1, 1, 0]))])
    head = found.heads["2"]
    assert head.inputs.shape == (24, 3)
    assert head.labels.tolist() == [[0, 1, 1, 0][int(number)] for number in head.inputs[:, 0]]


def test_a_convolutional_head_that_is_called_twice_has_no_labels():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Conv2d(1, 3, 1), nn.Conv2d(3, 2, 1)

        def forward(self, x):
            x = self.first(x).relu()
            return (self.head(x) + self.head(x.flip(0))).mean((2, 3))

    model, images = Twice(), torch.randn(4, 1, 2, 3)
    found = gather_features(model, trace(model, images, strict=False), [(images, torch.tensor([0, 1, 1, 0]))])
    assert found.heads["head"].labels is None


def test_generators_tensors_and_dicts_are_read():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = tiny()

        def forward(self, x, labels=None):
            return self.net(x)

    model, batches = Named(), vectors()
    graph = trace(model, batches[0][0])
    pairs = gather_features(model, graph, batches)
    tensors = gather_features(model, graph, [x for x, _ in batches])
    dicts = gather_features(model, graph, ({"x": x, "labels": y} for x, y in batches))
    for other in (tensors, dicts):
        assert other.batches == 3
        torch.testing.assert_close(other.groups["net.0"].moment, pairs.groups["net.0"].moment)
    assert tensors.margins is None and tensors.heads["net.4"].labels is None
    torch.testing.assert_close(dicts.margins, pairs.margins)
    assert torch.equal(dicts.heads["net.4"].labels, pairs.heads["net.4"].labels)


def test_a_shuffling_loader_leaves_the_generator_alone():
    model, (x, y) = tiny(), vectors(1, 20)[0]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 5, shuffle=True)
    before = torch.get_rng_state()
    gather_features(model, trace(model, x), loader)
    assert torch.equal(before, torch.get_rng_state())


def test_hooks_are_gone_after_an_error_on_the_way():
    model, batches = tiny(), vectors()
    model.train()
    with pytest.raises(RuntimeError):
        gather_features(model, trace(model, batches[0][0]), [*batches, (torch.zeros(2, 9), torch.zeros(2))])
    assert not any(hooks(model)) and all(module.training for module in model.modules())


def test_activations_that_are_not_finite_are_refused():
    model, batches = tiny(), vectors()
    graph = trace(model, batches[0][0])
    batches[1][0][0, 0] = torch.inf
    with pytest.raises(PlanError, match="finite activations of 0"):
        gather_features(model, graph, batches)


@pytest.mark.parametrize("data", [[], torch.zeros(2, 4), (torch.zeros(2, 4), torch.zeros(2))])
def test_no_batches_are_refused(data):
    model = tiny()
    with pytest.raises(PlanError, match="batch"):
        gather_features(model, trace(model, torch.zeros(2, 4)), data)
