"""What a Watch sees, against whole activations kept by a hook of the test's own."""

import pytest
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

import rekindle as rk
from rekindle.errors import PlanError
from rekindle.graph import trace
from rekindle.graph.calls.inputs import as_call
from rekindle.methods.recycling import recyclable
from rekindle.observe import activations
from rekindle.observe.activations import Watch
from rekindle.testing.aged import graph_of, hooks
from rekindle.testing.zoo import ZOO, zoo


def forward(model, example):
    args, kwargs = as_call(model, example)
    return model(*args, **kwargs)


def watch(model, example, *quantities, graph=None):
    groups, _ = recyclable(graph or trace(model, example))
    return Watch(model, groups, quantities or ("magnitude", "mean", "fired"), example)


def kept(model, paths, example):
    """Run the model and return the whole input of each module, features first: [features, everything else]."""
    found, handles = {}, []
    for path in paths:
        module = model.get_submodule(path)
        dim = 1 if isinstance(module, _ConvNd) else -1

        def keep(module, args, path=path, dim=dim):
            new = args[0].detach().movedim(dim, 0).flatten(1).double()
            found[path] = torch.cat([found[path], new], 1) if path in found else new

        handles.append(module.register_forward_pre_hook(keep))
    forward(model, example)
    for handle in handles:
        handle.remove()
    return found


def distinct(tensors):
    result = []
    for tensor in tensors:
        if not any(tensor.shape == other.shape and torch.equal(tensor, other) for other in result):
            result.append(tensor)
    return result


RECURRENT = ("lstm_classifier", "gru_cells", "relu_rnn")  # see test_sides


@pytest.mark.parametrize("member", [m for m in zoo() if m.name not in RECURRENT], ids=lambda member: member.name)
def test_against_whole_activations(member):
    model, example, graph = member.build(), member.example(), graph_of(member)
    groups, _ = recyclable(graph)
    seeing = watch(model, example, graph=graph)
    forward(model, example)
    magnitude, mean, fired = (seeing.seen(quantity) for quantity in ("magnitude", "mean", "fired"))
    assert set(magnitude) == set(fired) == {group.name for group in groups} - set(seeing.unseen)
    for group in groups:
        if group.name in seeing.unseen:
            continue
        inputs = kept(model, {slot.module for slot in group.outgoing}, example)
        whole = [inputs[slot.module][slot.where.index].flatten(1) for slot in group.outgoing]  # [units, all values]
        readers = distinct(whole)
        expected = torch.stack([each.abs().mean(1) for each in readers]).mean(0)
        torch.testing.assert_close(magnitude[group.name].double(), expected, rtol=1e-5, atol=1e-6)
        top = torch.stack([each.abs().amax(1) for each in readers]).amax(0)
        torch.testing.assert_close(fired[group.name].double(), top)
    biased = {name for name in mean if name in magnitude}
    assert biased <= set(magnitude)


def test_means_are_kept_per_feature_and_reader():
    member = ZOO["dueling"]  # nine channels are flattened over four positions, for two readers of one activation
    model, example = member.build(), member.example()
    seeing = watch(model, example, "mean", graph=graph_of(member))
    forward(model, example)
    layout = seeing.layout("mean")
    (number,) = [n for n, place in enumerate(layout.points) if place.group == "conv2"]
    assert layout.points[number].tensors == ("value_hidden.weight", "advantage_hidden.weight")
    found = seeing.features("mean")[layout.spans[number]].reshape(9, 4)
    expected = kept(model, ["value_hidden"], example)["value_hidden"].mean(1).reshape(9, 4)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


class Stream(nn.Module):
    """A unit that is silent for the first block and speaks to the head."""

    def __init__(self):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.stem(x).relu()
        return self.head(x + self.block(x).relu())


def test_a_residual_stream_is_seen_at_every_reader():
    torch.manual_seed(0)
    net, x = Stream(), torch.randn(32, 3)
    net.stem.bias.data[1] = -100.0
    net.block.bias.data[1] = 5.0
    seeing = watch(net, x)
    net(x)
    assert [point.reader.module for point in seeing.points if point.group == "stem"] == ["block", "head"]
    assert seeing.seen("magnitude")["stem"][1] > 1
    assert seeing.seen("fired")["stem"][1] > 1
    keeper = rk.Keeper(net, None, "redo:period=1,threshold=0.1", example=x)
    net(x).sum().backward()
    keeper.step()
    assert keeper.recycled["stem"] == 0


def test_what_is_not_training_is_not_counted():
    member = ZOO["mlp"]
    model, example = member.build(), member.example()
    seeing = watch(model, example)
    with pytest.raises(PlanError, match="forward pass with gradients"):
        seeing.seen("magnitude")
    with torch.no_grad():
        model(example)
    with torch.inference_mode():
        model(example)
    seeing.active = False
    model(example)
    with pytest.raises(PlanError):
        seeing.features("fired")
    seeing.active = True
    model(example)
    once = seeing.seen("magnitude")["layers.0"]
    with torch.no_grad():
        model(100 * example)
    assert torch.equal(once, seeing.seen("magnitude")["layers.0"])


def test_accumulated_batches_count_as_one():
    member = ZOO["cnn_bn"]
    model, example = member.build().eval(), member.example()
    seeing = watch(model, example, graph=graph_of(member))
    model(example)
    whole = {q: seeing.features(q) for q in ("magnitude", "mean", "fired")}
    seeing.clear()
    model(example[:3])
    model(example[3:])
    for quantity, expected in whole.items():
        torch.testing.assert_close(seeing.features(quantity), expected)


def test_close_leaves_no_hook_behind():
    model, example = ZOO["vgg"].build(), ZOO["vgg"].example()
    before = hooks(model)
    seeing = watch(model, example)
    assert hooks(model) != before
    seeing.close()
    assert hooks(model) == before


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.head = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 2)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        keys = self.kv(-x).relu()
        return self.head(self.attention(self.q(x).relu(), keys, keys)[0])


class TwoInOne(nn.Module):
    """Two weights in one module: its input is what the first reads, and fits the second by its width."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x, self.first.weight).relu(), self.second.weight)


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.inner = nn.Linear(3, 4), Bare()

    def forward(self, x):
        return self.inner(self.stem(x).relu())


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(2, 4))

    def reset_parameters(self):
        nn.init.normal_(self.w1)
        nn.init.normal_(self.w2)

    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x, self.w1).relu(), self.w2)


@pytest.mark.parametrize(
    ("net", "shape", "group"),
    [(CrossAttention, (2, 3, 4), "kv"), (TwoInOne, (2, 4), "first"), (Holder, (2, 3), "inner.w1")],
)
def test_an_activation_that_is_not_the_modules_input_is_not_taken_for_it(net, shape, group):
    model = net()
    seeing = watch(model, torch.randn(shape))
    assert group in seeing.unseen
    assert "cannot be seen" in seeing.unseen[group]


@pytest.mark.parametrize("form", ["bfloat16", "channels_last", "no batch"])
def test_other_forms_of_activations(form):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 2, 3))
    x = torch.randn(16, 3, 8, 8)
    seeing = watch(net, x)
    net(x)
    expected = {q: seeing.features(q) for q in ("magnitude", "mean", "fired")}
    seeing.clear()
    if form == "bfloat16":
        with torch.autocast("cpu", torch.bfloat16):
            net(x)
    elif form == "channels_last":
        net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    else:
        for image in x:
            net(image)
    tolerance = 2e-2 if form == "bfloat16" else 1e-5
    for quantity, value in expected.items():
        found = seeing.features(quantity)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, value, rtol=tolerance, atol=tolerance)


def test_processes_count_by_their_samples(monkeypatch):
    member = ZOO["mlp"]
    model, example = member.build(), member.example()
    seeing = watch(model, example)
    model(example)
    whole = {q: seeing.seen(q)["layers.1"] for q in ("magnitude", "mean", "fired")}
    sent = []

    def here(values, *, largest=False):  # the first process: its values wait for the second's
        sent.append(values.clone())
        return values

    monkeypatch.setattr(activations, "processes", lambda: 2)
    monkeypatch.setattr(activations, "summed", here)
    for part in (example[:12], example[12:]):
        seeing.clear()
        model(part)
        for quantity in whole:
            seeing.seen(quantity)
    first = dict(zip(whole, sent[:3], strict=True))
    for quantity, expected in whole.items():
        join = torch.maximum if quantity == "fired" else torch.add
        monkeypatch.setattr(activations, "summed", lambda values, *, largest, q=quantity, j=join: j(values, first[q]))
        torch.testing.assert_close(seeing.seen(quantity)["layers.1"], expected)


def test_a_branch_that_was_not_run_is_not_judged():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(3, 5), nn.Linear(5, 2)
            self.both = True

        def forward(self, x):
            y = self.b(self.a(x).relu())
            return y + self.d(self.c(x).relu()) if self.both else y

    net, x = Branches(), torch.randn(4, 3)
    seeing = watch(net, x)
    net.both = False
    net(x)
    assert set(seeing.seen("magnitude")) == {"a"}
    assert seeing.features("magnitude")[4:].tolist() == [0.0] * 5
