"""What tracing leaves as it was, what it refuses, and what it says."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.testing.zoo import NOT_UNDERSTOOD, ZOO


def test_the_model_is_left_as_it_was():
    model = ZOO["resnet_basic"].build()
    model.train()
    model.stem_bn = getattr(model, "bn", None)
    first = next(model.children())
    first.eval()
    modes = [m.training for m in model.modules()]
    before = {n: t.clone() for n, t in model.state_dict().items()}
    state = torch.get_rng_state()
    rk.trace(model, ZOO["resnet_basic"].example())
    assert modes == [m.training for m in model.modules()]
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_cache_of_a_language_model_is_switched_off_and_on_again():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    assert model.config.use_cache
    rk.trace(model, {"input_ids": torch.tensor([[1, 2, 3]])})
    assert model.config.use_cache


def test_examples_as_tensor_tuple_and_dict():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 2)

        def forward(self, a, b):
            return {"y": self.fc(torch.cat([a, b], dim=-1))}

    a, b = torch.ones(1, 2), torch.ones(1, 3)
    for example in ((a, b), [a, b], {"a": a, "b": b}):
        (group,) = rk.trace(Two(), example).groups
        assert group.kind == "output" and group.size == 2


def test_an_example_that_does_not_fit_is_told():
    with pytest.raises(GraphError, match="expected: a model that runs with this example"):
        rk.trace(nn.Linear(3, 2), torch.ones(1, 4))


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_named_with_its_path(name):
    member = NOT_UNDERSTOOD[name]
    with pytest.raises(GraphError, match="aten"):
        rk.trace(member.build(), member.example())
    graph = rk.trace(member.build(), member.example(), strict=False)
    (part,) = graph.not_understood
    assert part in str(graph)
    touched = [why for why in graph.uncovered.values() if part in why]
    assert touched or name == "unknown_op"


def test_an_unknown_layer_by_hand():
    member = NOT_UNDERSTOOD["unknown_layer"]
    graph = rk.trace(member.build(), member.example(), strict=False)
    assert graph.not_understood[0].startswith("bilinear: aten.bilinear")
    assert {g.kind for g in graph.groups} == {"output"}  # the units before it enter the layer: left out
    within = [n for n in graph.uncovered if n.startswith("bilinear.")]
    assert len(within) == 2 and all("not understood" in graph.uncovered[n] for n in within)


def test_units_around_an_unknown_operation_are_left_out():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.c(self.b(self.a(x).cumsum(-1)).relu())

    graph = rk.trace(Odd(), torch.ones(1, 3), strict=False)
    assert [g.name for g in graph.groups] == ["b", "c"]
    assert graph.uncovered.keys() == {"a.weight", "a.bias"}
    assert rk.fire_(Odd(), example=torch.ones(1, 3)).changed  # matrices are matrices all the same


def test_in_place_writes_through_views_are_not_guessed():
    class Slice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 2), nn.Linear(4, 2)

        def forward(self, x):
            h = self.a(x)
            h[:, :2] += self.b(x)
            return self.c(h)

    with pytest.raises(GraphError, match="aten.add_"):
        rk.trace(Slice(), torch.ones(1, 3))


def test_data_written_into_data_is_data():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.gate, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            before = torch.zeros_like(x)
            rest = before[:, 1:]
            rest.copy_(x[:, :-1])
            before[:, 0] = 7.0
            return self.head(self.fc(before) * self.gate(x))

    class Plain(Shifted):
        def forward(self, x):
            return self.head(self.fc(x) * self.gate(x))

    written, plain = (rk.trace(cls(), torch.ones(2, 3)) for cls in (Shifted, Plain))
    assert [(w.name, w.role) for w in written.weights] == [(w.name, w.role) for w in plain.weights]
    assert [(g.name, g.size, g.kind) for g in written.groups] == [(g.name, g.size, g.kind) for g in plain.groups]
    model = Shifted()
    assert set(written.verify(model, torch.randn(2, 3)).proved) == {g.name for g in plain.groups if not g.leaves}


def test_what_is_written_into_a_known_tensor_is_named():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)
            self.register_buffer("order", torch.tensor([0, 1, 2]))

        def forward(self, x):
            self.order[:2].copy_(x[0, :2].long())
            return self.fc(x[:, self.order])

    with pytest.raises(GraphError, match="aten.copy_"):
        rk.trace(Table(), torch.ones(1, 3))


def test_in_place_operations_on_whole_values():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            h = F.relu_(self.a(x))
            h += self.b(x)
            h.mul_(2)
            return self.c(h)

    graph = rk.trace(InPlace(), torch.ones(1, 3))
    stream = graph.group("a")
    assert stream.kind == "stream" and {s.tensor for s in stream.incoming} >= {"a.weight", "b.weight"}


def test_parameters_that_have_no_slot_are_listed_with_the_reason():
    class Scalars(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)
            self.temperature = nn.Parameter(torch.ones(()))
            self.unused = nn.Parameter(torch.ones(4))
            self.input_scale = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.fc(x * self.input_scale) / self.temperature

    uncovered = rk.trace(Scalars(), torch.ones(1, 3)).uncovered
    assert set(uncovered) == {"temperature", "unused", "input_scale"}
    assert "not used" in uncovered["unused"] and "without a unit axis" in uncovered["temperature"]
    assert "without a unit axis" in uncovered["input_scale"]


def test_resnet50_at_full_size():
    graph = rk.trace(rk.lab.models.ResNet50(), torch.zeros(1, 3, 224, 224))  # its cost: benchmarks/trace.py
    assert len(graph.groups) == 1 + 4 + 2 * 16 + 1


def test_the_table_is_readable():
    text = str(rk.trace(ZOO["cnn_bn"].build(), ZOO["cnn_bn"].example()))
    assert "unit groups" in text and "written by" in text and "(x" in text and "model output" in text


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_layers_without_units_carry_none():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 0), nn.ReLU(), nn.Linear(0, 3), nn.Linear(3, 2))
    graph = rk.trace(model, torch.ones(2, 4))
    assert [(group.name, group.size) for group in graph.groups] == [("0", 6), ("4", 3), ("5", 2)]
    assert not graph.group("0").outgoing and [slot.tensor for slot in graph.group("4").incoming] == ["4.bias"]
    assert [weight.name for weight in graph.weights] == ["0.weight", "5.weight"]
    assert graph.uncovered == dict.fromkeys(("2.weight", "2.bias", "4.weight"), "it has no values")
    assert "4" in graph.verify(model, torch.ones(2, 4)).proved


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_what_has_no_units_adds_none_to_others():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 0), nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.c(torch.cat([self.a(x), self.b(x)], 1).relu())

    model = Joined()
    graph = rk.trace(model, torch.ones(2, 4))
    assert [(group.name, group.size) for group in graph.groups] == [("b", 6), ("c", 2)]
    assert graph.verify(model, torch.randn(2, 4)).proved == ("b",)


def test_structure_needs_no_values():
    model = ZOO["resnet_basic"].build()
    with_values = rk.trace(model, ZOO["resnet_basic"].example())
    without = rk.trace(model.to("meta"), ZOO["resnet_basic"].example())
    assert str(without) == str(with_values)
