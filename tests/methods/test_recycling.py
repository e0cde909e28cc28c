"""The shared recycling pass, on cases that can be checked by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from rekindle.edits.transaction import prepare
from rekindle.graph import trace
from rekindle.methods.recycling import not_cut_off, recyclable, recycle
from rekindle.observe.activations import Watch
from rekindle.testing.zoo import ZOO, zoo


def do(model, graph, chosen, means=None, optimizer=None, seed=0):
    chosen = {name: torch.tensor(units) for name, units in chosen.items()}
    edits = recycle(graph, chosen, "test", seed, model, means)
    given = [] if optimizer is None else [optimizer]
    prepare(edits, model, optimizers=given, aliases=graph.aliases).commit()
    return edits


def bound(layer):
    return 1 / (layer.weight[0].numel() ** 0.5)


def test_a_hidden_unit_of_a_perceptron():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(7.0)
    graph = trace(net, torch.zeros(1, 4))
    do(net, graph, {"0": [1]})
    assert (net[0].weight[[0, 2]] == 7).all() and (net[0].bias[[0, 2]] == 7).all()
    assert (net[0].weight[1].abs() <= bound(net[0])).all() and net[0].weight[1].std() > 0
    assert net[0].bias[1].abs() <= bound(net[0])
    assert net[2].weight.tolist() == [[7, 0, 7], [7, 0, 7]]
    assert net[2].bias.tolist() == [7, 7]


def test_every_column_after_a_flatten():
    """Published code zeroes one of four columns, and of another channel."""
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2))
    graph = trace(net, torch.zeros(1, 3, 4, 4))
    do(net, graph, {"0": [2]})
    silent = (net[3].weight == 0).all(0).reshape(5, 4)
    assert silent.tolist() == [[channel == 2] * 4 for channel in range(5)]
    x = torch.randn(6, 3, 4, 4)
    before = net(x)
    with torch.no_grad():
        net[0].weight[2] += 3.0
    assert torch.equal(net(x), before)


def test_a_stream_is_recycled_in_all_that_write_and_read_it():
    """Published code pairs layers by their order, across the sum of a residual network."""
    member = ZOO["resnet_basic"]
    model = member.build()
    graph = trace(model, member.example())
    edits = do(model, graph, {"conv": [3]}).edits
    assert {e.tensor for e in edits if e.reason.endswith("silent")} == {
        "stages.0.0.conv1.weight",
        "stages.0.1.conv1.weight",
        "stages.1.0.conv1.weight",
        "stages.1.0.shortcut.0.weight",
    }
    for layer in (model.stages[0][0].conv1, model.stages[0][1].conv1, model.stages[1][0].conv1):
        assert (layer.weight[:, 3] == 0).all() and (layer.weight[:, 2] != 0).all()
    for norm in (model.bn, model.stages[0][0].bn2, model.stages[0][1].bn2):
        assert (norm.weight[3], norm.bias[3], norm.running_mean[3], norm.running_var[3]) == (1, 0, 0, 1)


def test_an_element_that_is_incoming_for_one_and_outgoing_for_another_is_silent():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    graph = trace(net, torch.zeros(1, 4))
    old = net[2].weight.detach().clone()
    do(net, graph, {"2": [0], "0": [1]})
    assert (net[2].weight[:, 1] == 0).all()
    assert (net[2].weight[0, [0, 2]] != old[0, [0, 2]]).all()
    assert torch.equal(net[2].weight[1:, [0, 2]], old[1:, [0, 2]])


def test_a_square_layer_of_a_stream():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.block, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            x = self.stem(x)
            return self.head(x + self.block(x).relu())

    net, x = Residual(), torch.randn(8, 3)
    graph = trace(net, x)
    old = net.block.weight.detach().clone()
    do(net, graph, {"stem": [1]})
    assert (net.block.weight[:, 1] == 0).all() and (net.head.weight[:, 1] == 0).all()
    assert (net.block.weight[1, [0, 2, 3]] != old[1, [0, 2, 3]]).all()
    before = net(x)
    with torch.no_grad():
        net.stem.weight[1] += 3.0
        net.block.bias[1] += 3.0
    assert torch.equal(net(x), before)


def test_a_unit_that_would_read_nothing_waits():
    member = ZOO["mobilenet"]  # channel by channel: conv, depthwise, pointwise
    graph = trace(member.build(), member.example())
    a = torch.tensor
    found = not_cut_off(graph, {"conv": a([1, 3]), "blocks.0.depthwise": a([1, 2]), "blocks.0.pointwise": a([0])})
    assert {name: units.tolist() for name, units in found.items()} == {
        "conv": [1, 3],
        "blocks.0.depthwise": [2],
        "blocks.0.pointwise": [0],
    }
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    graph = trace(net, torch.zeros(1, 4))
    assert set(not_cut_off(graph, {"0": a([0, 1, 2]), "2": a([0, 4])})) == {"0"}
    assert set(not_cut_off(graph, {"0": a([0, 1]), "2": a([0, 4])})) == {"0", "2"}


def test_draws_depend_on_seed_and_reason_alone():
    def drawn(seed, reason="a"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        graph = trace(net, torch.zeros(1, 4))
        torch.manual_seed(seed + 10)
        edits = recycle(graph, {"0": torch.tensor([1])}, reason, seed, net)
        state = torch.get_rng_state()
        prepare(edits, net).commit()
        assert torch.equal(state, torch.get_rng_state())
        return net[0].weight.detach()[1]

    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))
    assert not torch.equal(drawn(0, "at step 1"), drawn(0, "at step 2"))


# The bias of a reader takes up what a unit gave on average.


def means_of(model, graph, example):
    groups, _ = recyclable(graph)
    watch = Watch(model, groups, ("mean",), example)
    model(**example) if isinstance(example, dict) else model(example)
    flat, layout = watch.features("mean"), watch.layout("mean")
    found = {}
    for place, span in zip(layout.points, layout.spans, strict=True):
        mean = flat[span].reshape(place.index.shape)
        found.setdefault(place.group, {}).update(dict.fromkeys(place.tensors, mean))
    watch.close()
    return found


class GroupedTransposed(nn.Module):
    """As many inputs as outputs, so that a wrong dimension of the weight would fit."""

    def __init__(self):
        super().__init__()
        self.conv, self.up = nn.Conv2d(3, 8, 1), nn.ConvTranspose2d(8, 8, 2, stride=2, groups=2)

    def forward(self, x):
        return self.up(self.conv(x).relu())


class NormedReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(3, 6), weight_norm(nn.Linear(6, 4))

    def forward(self, x):
        return self.head(self.fc(x).relu())


READERS = {
    "linear": (lambda: nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4)), (16, 3), "0"),
    "flatten": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 4)),
        (16, 3, 4, 4),
        "0",
    ),
    "pointwise": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1)), (4, 3, 5, 5), "0"),
    "grouped": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 1, groups=2)),
        (4, 3, 5, 5),
        "0",
    ),
    "circular": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1, padding_mode="circular")),
        (4, 3, 5, 5),
        "0",
    ),
    "transposed": (GroupedTransposed, (4, 3, 5, 5), "conv"),
    "weight_norm": (NormedReader, (16, 3), "fc"),
}


@pytest.mark.parametrize("name", READERS)
def test_the_mean_output_of_the_reader_stays(name):
    torch.manual_seed(0)
    build, shape, group = READERS[name]
    net, x = build(), torch.randn(shape)
    graph = trace(net, x)
    means = means_of(net, graph, x)

    def mean():
        return net(x).detach().transpose(0, 1).flatten(1).mean(1)

    before = mean()
    bias = {n: p for n, p in net.named_parameters() if n.endswith("bias")}
    last = list(bias)[-1]
    old = bias[last].detach().clone()
    do(net, graph, {group: [1, 4]}, means)
    assert not torch.equal(bias[last], old)
    torch.testing.assert_close(mean(), before, rtol=1e-4, atol=1e-6)


def test_without_means_biases_stay():
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4))
    graph = trace(net, torch.zeros(1, 3))
    old = net[2].bias.detach().clone()
    do(net, graph, {"0": [1]})
    assert torch.equal(net[2].bias, old)


def given(model, path, example):
    """Return what a module is given, as [samples, features]."""
    found = []
    handle = model.get_submodule(path).register_forward_pre_hook(lambda _, args: found.append(args[0].detach()))
    model(**example) if isinstance(example, dict) else model(example)
    handle.remove()
    return torch.cat([x.reshape(-1, x.shape[-1]) for x in found])


@pytest.mark.parametrize("name", ["gpt2", "vit_fused", "vit_mha", "transformer_encoder", "rms_norm_mlp"])
def test_each_reader_takes_up_what_it_sees_itself(name):
    """A stream's readers see it after different norms; a fused projection has one bias for all its rows."""
    (member,) = zoo([name]) or pytest.skip("transformers is not installed")
    model, example = member.build(), member.example()
    graph = trace(model, example)
    means = means_of(model, graph, example)
    live = {name: p.detach() for name, p in model.named_parameters()}
    modules = {slot.tensor: slot.module for group in graph.groups for slot in group.outgoing}
    assert means
    for group in means:
        edits = recycle(graph, {group: torch.tensor([0, 2])}, "t", 0, model, means).edits
        taken = [edit for edit in edits if edit.reason.endswith("taken up")]
        assert {edit.reads[0] for edit in taken} == {slot.tensor for slot in graph.group(group).outgoing}
        for edit in taken:
            (weight,) = edit.reads
            x = given(model, modules[weight], example)
            matrix = live[weight].T if name == "gpt2" else live[weight]  # Conv1D is in x out
            expected = matrix[:, [0, 2]] @ x.mean(0)[[0, 2]]
            added = edit.op(live[edit.tensor], live[weight]) - live[edit.tensor]
            torch.testing.assert_close(added, expected, rtol=1e-3, atol=1e-5)


# weight_norm: the direction cannot be zero as a whole, and the gain must not blow up what stays.


@pytest.mark.parametrize("units", [[1], [0, 3], [0, 1, 2, 3, 4, 5]])
def test_a_reader_under_weight_norm_keeps_its_other_weights(units):
    torch.manual_seed(0)
    net, x = NormedReader(), torch.randn(8, 3)
    graph = trace(net, x)
    before = net.head.weight.detach().clone()
    do(net, graph, {"fc": units})
    after = net.head.weight.detach()
    stay = [u for u in range(6) if u not in units]
    assert (after[:, units] == 0).all()
    torch.testing.assert_close(after[:, stay], before[:, stay])
    loss = net(x).square().sum() if stay else (net(x) - 1).square().sum()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_incoming_and_outgoing_of_one_weight_norm_layer():
    member = ZOO["weight_norm_mlp"]
    model = member.build()
    graph = trace(model, member.example())
    before = model.fc.weight.detach().clone()
    do(model, graph, {"conv": [2], "fc": [4]})
    silent = torch.zeros(28, dtype=torch.bool)
    silent[8:12] = True
    after = model.fc.weight.detach()
    assert (after[:, silent] == 0).all()
    rows = torch.arange(11) != 4
    torch.testing.assert_close(after[rows][:, ~silent], before[rows][:, ~silent])
    fresh = graph.fresh("fc.parametrizations.weight.original1", (11, 28), 0, "test")
    torch.testing.assert_close(
        after[4, ~silent], fresh[4, ~silent]
    )  # the layer's own initializer, silent columns aside


# What cannot be recycled is named.


class Standardized(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        return F.conv2d(x, w - w.mean((1, 2, 3), keepdim=True), self.bias)


def test_a_weight_that_is_computed_need_not_be_silent_at_zero():
    for reader in (Standardized(4, 2, 1), spectral_norm(nn.Conv2d(4, 2, 1))):
        net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), reader)
        groups, left = recyclable(trace(net, torch.zeros(1, 3, 2, 2), strict=False))
        assert "0" not in {group.name for group in groups}
        assert "computation" in left["0"]


def test_frozen_layers_are_left_alone():
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    graph = trace(net, torch.zeros(1, 3))
    groups, left = recyclable(graph, {"0.weight", "0.bias"})
    assert [group.name for group in groups] == ["2"]
    assert left["0"] == "0.weight is frozen"
    assert len(recyclable(graph)[0]) == 2


def test_every_group_is_recycled_or_has_a_reason():
    seen = {}
    for member in zoo(["mlp_functional", "tied_autoencoder", "shared_module", "mixer", "gpt", "vit_mha"]):
        graph = trace(member.build(), member.example())
        groups, left = recyclable(graph)
        assert {group.name for group in groups} | set(left) == {group.name for group in graph.groups}
        assert not {group.name for group in groups} & set(left)
        seen |= {f"{member.name}/{name}": reason for name, reason in left.items()}
    assert seen["mlp_functional/w1"] == "it is not known how w1 is drawn afresh"
    assert seen["tied_autoencoder/encoder"] == "encoder.weight both writes and reads it"
    assert seen["gpt/wte"] == "wte.weight both writes and reads it"
    assert "shared_module/stem" not in seen  # rows and columns of a square layer cross in one element
    assert "without a weight" in seen["mixer/patches"]
    assert "queries and keys" in seen["vit_mha/blocks.0.attention.mha.in_proj_weight[qk]"]


def test_parametrized_twice_is_not_guessed():
    class Doubled(nn.Module):
        def forward(self, w):
            return 2 * w

    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    parametrize.register_parametrization(net[2], "weight", Doubled())
    graph = trace(net, torch.zeros(1, 3), strict=False)
    groups, left = recyclable(graph)
    x = torch.randn(5, 3)
    for group in groups:  # if it is treated at all, it must be silent
        do(net, graph, {group.name: [1]})
        before = net(x)
        with torch.no_grad():
            net[0].weight[1] += 3.0
        assert torch.equal(net(x), before)
    assert groups or left
