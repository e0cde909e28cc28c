"""A real run, written down call by call."""

import torch
from torch import nn

from rekindle.graph.branching.real_run import record


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, *, twice=False):
        self.count += 1
        return self.fc(self.fc(x)) if twice else (self.fc(x),)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.unused = Block(), nn.Linear(3, 3)

    def forward(self, x):
        (y,) = self.block(x)
        return self.block.forward(y, twice=True) + self.block.fc.bias


def test_calls_with_what_they_were_given_and_what_they_returned():
    model, x = Model(), torch.ones(2, 3)
    run = record(model, (x,), {})
    assert run.start.module is model and run.start.args[0] is x
    first, second = run.calls_of(model.block)
    assert first.output[0] is second.args[0] and second.kwargs == {"twice": True} and first.way != second.way
    assert [len(call.inner) for call in (first, second)] == [1, 2] and len(run.calls_of(model.block.fc, second)) == 2
    assert list(first.inner[0].above()) == [first.inner[0], first, run.start]
    assert not run.calls_of(model.unused) and not run.smuggled


def test_who_uses_which_tensor():
    model = Model()
    used = {name: {id(c.module) for c in calls} for name, calls in record(model, (torch.ones(2, 3),), {}).used.items()}
    assert used["block.fc.weight"] == {id(model.block.fc)}
    assert used["block.fc.bias"] == {id(model.block.fc), id(model)} and used["block.count"] == {id(model.block)}
    assert not any(name.startswith("unused") for name in used)


def test_nothing_is_left_behind():
    model, state = Model(), torch.get_rng_state()
    record(model, (torch.ones(2, 3),), {})
    assert model.block.count == 0 and not any("forward" in vars(m) for m in model.modules())
    assert torch.equal(state, torch.get_rng_state())


def test_what_goes_by_an_attribute_is_noted_what_is_given_in_place_is_not():
    class Writes(nn.Module):
        def forward(self, out, x):
            self.kept = x * 2
            out += x
            return out

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.writes, self.by_attribute = Writes(), False

        def forward(self, x):
            out = torch.zeros(2, 3)
            self.writes(out, x)
            return out + self.writes.kept if self.by_attribute else out * 2

    model = Reads()
    assert not record(model, (torch.ones(2, 3),), {}).smuggled
    model.by_attribute = True
    ((made, used),) = record(model, (torch.ones(2, 3),), {}).smuggled
    assert made.module is model.writes and used.module is model
