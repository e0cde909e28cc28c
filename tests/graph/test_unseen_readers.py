"""Ways in which units were read that the graph did not see, found by somebody who tried to break it.

The oracle is the model itself: with the outgoing slots of a group (and of those it passes into) at zero, nothing that
its incoming slots do may reach the output.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rekindle.graph import trace
from rekindle.graph.proof.disturbance import disturbed, silenced
from rekindle.graph.proof.whole_trial import call_at_rest, copies_of
from rekindle.graph.verification import closure_of


class Net(nn.Module):
    """Layers a and b with more beside them, and a function for a forward pass."""

    def __init__(self, function, reads=5, **more):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.function = nn.Linear(4, 5), nn.Linear(reads, 3), function
        for name, part in more.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, self.a(x).relu(), x)


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(1)))


def sampled(m, h, x):
    features = x[:, None, None, :].expand(-1, 1, 4, 4)
    return m.b(h) + F.grid_sample(features, h[:, :2].view(-1, 1, 1, 2), align_corners=False).flatten(1)


def twice_in_place(m, h, x):
    h = m.a(x)
    h[:, 0] = 0
    h.add_(m.a(x))
    return m.b(h)


LSTM = nn.LSTM(4, 5, batch_first=True)
MODELS = {
    "embedding": Net(lambda m, h, x: m.b(h) + m.e(h.argmax(-1)), e=nn.Embedding(5, 3)),
    "index": Net(lambda m, h, x: m.b(h) + m.t[h.argmax(-1)], t=parameter(5, 3)),
    "index_select": Net(lambda m, h, x: m.b(h) + m.t.index_select(0, h.argmax(-1)), t=parameter(5, 3)),
    "gather": Net(lambda m, h, x: m.b(h) + x.gather(1, h[:, :3].argmax(-1, keepdim=True))),
    "grid_sample": Net(sampled),
    "router": Net(lambda m, h, x: torch.einsum("bi,boi->bo", x, m.t[h.argmax(-1)]), t=parameter(5, 3, 4)),
    "bernoulli": Net(lambda m, h, x: m.b(h) * torch.bernoulli(h.sigmoid()).mean(-1, keepdim=True)),
    "circular": Net(lambda m, h, x: m.b(F.pad(h[:, None], (2, 2), mode="circular")[:, 0]), reads=9),
    "reflect": Net(lambda m, h, x: m.b(F.pad(h[:, None], (2, 2), mode="reflect")[:, 0]), reads=9),
    "replicate": Net(lambda m, h, x: m.b(F.pad(h[:, None], (2, 2), mode="replicate")[:, 0]), reads=9),
    "mean_beside": Net(lambda m, h, x: m.b(torch.cat([h, h.mean(-1, keepdim=True)], -1)), reads=6),
    "norm_beside": Net(lambda m, h, x: m.b(torch.cat([F.normalize(h), h.norm(dim=-1, keepdim=True)], -1)), reads=6),
    "mean_stacked": Net(
        lambda m, h, x: m.b(torch.stack([h, h.mean(-1, keepdim=True).expand_as(h)], -1).flatten(1)), reads=10
    ),
    "one_of_a_softmax": Net(
        lambda m, h, x: m.b(torch.cat([m.k(x), h.softmax(-1)[:, :1]], -1)), reads=4, k=nn.Linear(4, 3)
    ),
    "readers_joined": Net(
        lambda m, h, x: F.linear(h, torch.cat([m.b.weight, m.c.weight])), c=nn.Linear(5, 2, bias=False)
    ),
    "readers_averaged": Net(lambda m, h, x: F.linear(h, torch.stack([m.b.weight, m.w]).mean(0)), w=parameter(3, 5)),
    "recurrent_rows_again": Net(
        lambda m, h, x: m.b(m.r(x[:, None].expand(-1, 2, -1))[0][:, -1]) + (x @ m.r.weight_ih_l0[:5].t()) @ m.w,
        r=LSTM,
        w=parameter(5, 3),
    ),
    "written_twice_in_place": Net(twice_in_place),
    "repeated_each_its_times": Net(
        lambda m, h, x: m.b(h.repeat_interleave(torch.tensor([1, 2, 1, 2, 1]), -1)), reads=7
    ),
    "inner": Net(lambda m, h, x: torch.inner(h, m.w), w=parameter(3, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_passes_silent_readers(name):
    model = MODELS[name].eval()
    examples = [torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)) for seed in (2, 3)]
    graph = trace(model, examples[0], strict=False)
    tensors = copies_of(model, wide=True)
    for group in graph.groups:
        closure = closure_of(graph, group)
        if any(each.leaves for each in closure):
            continue
        outgoing = [slot for each in closure for slot in each.outgoing]
        silent = silenced(tensors, outgoing, graph.gains)
        for example in examples:
            call = ((example.double(),), {})
            before = call_at_rest(model, {**tensors, **silent}, call)
            moved = disturbed(tensors, (*group.incoming, *group.norms), silent, outgoing, seed=0)
            after = call_at_rest(model, {**tensors, **moved}, call)
            torch.testing.assert_close(after, before, rtol=0, atol=1e-9, msg=f"{group.name} is seen")


@pytest.mark.parametrize(
    ("name", "columns"), [("circular", 9), ("repeated_each_its_times", 7), ("readers_joined", 5), ("inner", 5)]
)
def test_what_can_be_understood_is(name, columns):
    graph = trace(MODELS[name].eval(), torch.randn(6, 4))
    groups = [group for group in graph.groups if group.incoming[0].tensor == "a.weight"]
    assert sum(group.size for group in groups) == 5 and not any(group.leaves for group in groups)
    read = [slot for group in groups for slot in group.outgoing]
    assert sum(slot.where.index.numel() for slot in read) == columns * len({slot.tensor for slot in read})
    assert graph.verify(MODELS[name], torch.randn(6, 4)).proved
