"""Where the output of a module goes, on networks written for it and without a trace left behind."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rekindle.errors import PlanError
from rekindle.observe.consumers import consumers_of
from rekindle.testing import ZOO
from rekindle.testing.aged import bits, hooks, same
from tests.observe.test_outputs import Residual


class Net(nn.Module):
    """Two layers and a head, with something given in between."""

    def __init__(self, between, end=lambda net, h: net.head(h)):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.gate, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.act, self.drop = nn.ReLU(), nn.Dropout(0.5)
        self.between, self.end = between, end

    def forward(self, x):
        return self.end(self, self.between(self, self.conv(x)))


def seen(between, end=lambda net, h: net.head(h), path="conv"):
    torch.manual_seed(0)
    return consumers_of(Net(between, end), path, torch.randn(4, 3, 6, 6), {})


ACTIVATED = {
    "function": lambda net, h: F.relu(h).mean((2, 3)),
    "in place": lambda net, h: h.relu_().mean((2, 3)),
    "module": lambda net, h: net.act(h).mean((2, 3)),
    "pooled before and after": lambda net, h: F.max_pool2d(F.max_pool2d(h, 2).relu(), 3).flatten(1),
    "dropout and scaling": lambda net, h: net.drop(F.gelu(h * 2) / 3).amax((2, 3)),
    "silu by hand": lambda net, h: (h * h.sigmoid()).mean((2, 3)),
    "leaky by hand": lambda net, h: torch.maximum(h, 0.1 * h).mean((2, 3)),
    "crelu": lambda net, h: torch.cat([h.relu(), (-h).relu()], 1)[:, :4].mean((2, 3)),
    "detour": lambda net, h: h.relu().permute(0, 2, 3, 1).reshape(-1, 36, 4).mean(1),
}


@pytest.mark.parametrize("name", ACTIVATED)
def test_what_follows_an_activation_is_read_by_the_next_layer(name):
    found = seen(ACTIVATED[name])
    assert found.activated and found.readers == ("head",) and not found.elsewhere and found.weighted
    assert found.outputs[0].shape == (4, 4, 6, 6) and bool((found.outputs[0] < 0).any())
    (given,) = found.inputs
    assert given.shape == (4, 4) or given.shape == (4, 1, 4)


def test_several_readers_of_one_activation_give_its_values_once():
    found = seen(lambda net, h: h.relu().mean((2, 3)), lambda net, h: net.head(h) + net.gate(h)[:, :2])
    assert found.readers == ("head", "gate") and len(found.inputs) == 1


def test_values_are_those_behind_the_activation():
    torch.manual_seed(0)
    net, x = Net(lambda net, h: net.norm(h).relu().mean((2, 3))), torch.randn(4, 3, 6, 6)
    found = consumers_of(net, "norm", x, {"conv.weight": 2 * net.conv.weight.detach()})
    h = F.conv2d(x, 2 * net.conv.weight, net.conv.bias, padding=1)
    h = F.batch_norm(h, None, None, net.norm.weight, net.norm.bias, training=True)  # statistics of the batch
    torch.testing.assert_close(found.outputs[0], h)
    torch.testing.assert_close(found.inputs[0], h.relu().mean((2, 3)))


def test_without_an_activation_behind_it():
    raw = seen(lambda net, h: h.mean((2, 3)))
    assert not raw.activated and raw.readers == ("head",) and not raw.inputs
    normalized = seen(lambda net, h: net.norm(h).relu().mean((2, 3)))  # the next module with parameters is the norm
    assert not normalized.activated and normalized.readers == ("norm",)
    both = seen(lambda net, h: (h + h.relu()).mean((2, 3)))  # also used as it is
    assert not both.activated


ELSEWHERE = {
    "addition": (lambda net, h: h.relu().mean((2, 3)), lambda net, h: net.head(net.gate(h) + h), "add"),
    "product": (lambda net, h: h.relu().mean((2, 3)), lambda net, h: net.head(net.gate(h).sigmoid() * h), "mul"),
    "output": (lambda net, h: h.relu().mean((2, 3)), lambda net, h: (net.head(h), h), "the model's output"),
    "bare weight": (lambda net, h: h.relu().mean((2, 3)), lambda net, h: F.linear(h, net.head.weight), "mm"),
    "keyword": (lambda net, h: h.relu().mean((2, 3)), lambda net, h: net.head(input=h), "first argument alone"),
    "other input": (
        lambda net, h: h.relu().mean((2, 3)),
        lambda net, h: net.head(net.gate(h)) + net.head(h),
        "also reads",
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_where_it_is_used_and_no_module_could_stand_between(name):
    between, end, said = ELSEWHERE[name]
    found = seen(between, end)
    assert found.activated and any(said in one for one in found.elsewhere) and found.weighted


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.fc(x)


def test_a_residual_block_reads_as_a_whole_and_a_sequence_does_not():
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Sequential(Block(), nn.Linear(4, 2))))
    found = consumers_of(net, "0", torch.randn(5, 3), {})
    assert found.readers == ("1.1.0",) and not found.elsewhere


def test_no_weight_reads_logits():
    assert not seen(lambda net, h: h.relu().mean((2, 3)), path="head").weighted
    assert not seen(lambda net, h: h.mean((2, 3)), lambda net, h: h.softmax(-1)).weighted
    assert seen(lambda net, h: h.mean((2, 3)), lambda net, h: F.linear(h + 1, net.head.weight)).weighted


def test_several_calls_and_keyword_arguments():
    shared, gpt = ZOO["shared_module"], ZOO["gpt"]
    assert len(consumers_of(shared.build(), "shared", shared.example(), {}).outputs) == 2
    assert consumers_of(gpt.build(), "h.0", {"tokens": gpt.example()}, {}).outputs[0].shape[-1] == 12


def test_a_module_that_is_called_inside_its_reader_is_named():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = nn.Linear(3, 3), Block()
            self.block.fc = nn.ModuleList([nn.Linear(3, 3), self.first])
            self.block.forward = lambda x: self.first(self.block.fc[0](x))

        def forward(self, x):
            return self.block(self.first(x).relu())

    found = consumers_of(Again(), "first", torch.randn(5, 3), {})
    assert any("block, inside of which it is called again" in one for one in found.elsewhere)


def test_nothing_is_left_behind():
    model, x = Residual(), torch.randn(8, 3)
    model.side.eval()
    before, modes = bits(model), [m.training for m in model.modules()]
    consumers_of(model, "join", x, {})
    for wrong in ("gone", "act.x"):
        with pytest.raises(PlanError):
            consumers_of(model, wrong, x, {})
    with pytest.raises(PlanError, match="as the model takes it"):
        consumers_of(model, "join", torch.randn(8, 5), {})
    model.spare = nn.Linear(1, 1)
    with pytest.raises(PlanError, match="'spare' that the model calls"):
        consumers_of(model, "spare", x, {})
    del model.spare
    same(before, bits(model), "written:")
    assert modes == [m.training for m in model.modules()] and not any(hooks(model))


def test_the_batch_is_moved_to_the_model_s_type():
    model = Residual().to(torch.float64)
    assert consumers_of(model, "join", torch.randn(8, 3), {}).outputs[0].dtype == torch.float64


class Recurrent(nn.Module):
    """A recurrent layer of which the output or the last state is read."""

    def __init__(self, last_state):
        super().__init__()
        self.rnn, self.head, self.last_state = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2), last_state

    def forward(self, x):
        output, (state, _) = self.rnn(x)
        return self.head(state[-1] if self.last_state else output[:, -1])


@pytest.mark.parametrize("last_state", [False, True])
def test_what_is_given_beside_the_output_is_told(last_state):
    found = consumers_of(Recurrent(last_state), "rnn", torch.randn(5, 6, 3), {})
    assert found.beside is last_state
    assert found.readers == (() if last_state else ("head",))


def test_the_state_that_a_cell_gives_to_itself_is_its_own():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            state = None
            for step in x.unbind(1):
                state = self.cell(step, state)
            return self.head(state[0])

    found = consumers_of(Cells(), "cell", torch.randn(5, 6, 3), {})
    assert not found.beside and "head" in found.readers


def test_a_new_tensor_of_its_shape_is_no_use_of_it():
    class Zeros(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            x = self.stem(x).relu()
            return self.head(x) + x.new_zeros(len(x), 2) + torch.zeros_like(x)[:, :2]

    found = consumers_of(Zeros(), "stem", torch.randn(5, 3), {})
    assert found.readers == ("head",) and not found.elsewhere and found.activated
