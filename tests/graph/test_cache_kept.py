"""How traces are kept: with the model and not in it, no longer than it, the last few, and right after an interrupt."""

import copy
import dataclasses
import gc
import pickle
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph import cache
from rekindle.graph.trace_key import trace_key
from rekindle.testing.interrupts import Lines, moments_to_raise
from tests.graph.same_graph import Exports, same_graph

X = torch.zeros(2, 4)


@pytest.fixture
def exports(monkeypatch):
    return Exports(monkeypatch)


def net():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


class Own(nn.Module):
    """Draws itself afresh, and is held by its own hook, attribute and function."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.me = [self]
        self.act = lambda x: x if self.training else x * 2
        self.register_forward_hook(self.seen)

    def reset_parameters(self):
        nn.init.normal_(self.weight)

    def seen(self, module, args, output):
        return output + 1

    def forward(self, x):
        return self.act(self.norm(torch.nn.functional.linear(x, self.weight))[:, self.order])


@pytest.mark.parametrize("make", [net, Own])
def test_a_traced_model_dies(make):
    model = make()
    graph = rk.trace(model, X)
    rk.trace(model, X)
    assert graph.scale_constraints is not None and graph.lipschitz is not None, "whatever is computed late"
    gone = weakref.ref(model)
    known = len(cache._TRACES)
    del model, graph
    gc.collect()
    assert gone() is None
    assert len(cache._TRACES) < known


def test_a_graph_outlives_its_model():
    graph = rk.trace(net(), X)
    gc.collect()
    assert [group.size for group in graph.groups] == [4, 2]


def test_nothing_goes_with_the_model(exports):
    model = net()
    before = pickle.dumps(model), dict(model.__dict__), list(model.state_dict())
    rk.trace(model, X)
    assert (pickle.dumps(model), dict(model.__dict__), list(model.state_dict())) == before
    twin = copy.deepcopy(model)
    assert exports.of(lambda: rk.trace(twin, X)) == 1, "a copy is another model"


def test_the_last_few_are_kept(exports):
    model = net()
    sizes = range(1, cache.MOST + 2)
    for size in sizes[:-1]:
        rk.trace(model, torch.zeros(size, 4))
    assert exports.of(lambda: rk.trace(model, torch.zeros(1, 4))) == 0, "all are there"
    rk.trace(model, torch.zeros(sizes[-1], 4))
    assert exports.of(lambda: rk.trace(model, torch.zeros(1, 4))) == 0, "it was asked for lately"
    assert exports.of(lambda: rk.trace(model, torch.zeros(2, 4))) == 1, "it was asked for longest ago"
    assert len(cache._TRACES[model]) == cache.MOST


def test_fresh_takes_the_place_of_what_was_found(exports):
    model = net()
    rk.trace(model, X)
    assert exports.of(lambda: rk.trace(model, X, fresh=True)) == 1
    assert len(cache._TRACES[model]) == 1


FLAG = True


class ReadsAGlobal(nn.Linear):
    def forward(self, x):
        return super().forward(x.flip(1) if FLAG else x).relu()


def test_a_global_is_not_seen_and_fresh_helps(exports, monkeypatch):
    model = ReadsAGlobal(4, 2)
    rk.trace(model, X)
    monkeypatch.setitem(globals(), "FLAG", False)
    assert exports.of(lambda: rk.trace(model, X)) == 0, "it is seen now: say so in the docstring of trace"
    assert exports.of(lambda: rk.trace(model, X, fresh=True)) == 1
    assert "globals" in rk.trace.__doc__ and "fresh=True" in rk.trace.__doc__


def test_who_changes_a_graph_changes_no_other():
    model = net()
    for _ in range(2):
        graph = rk.trace(model, X)
        for table in (graph.uncovered, graph.aliases, graph.gains, graph.parameters, graph.initializers):
            table["mine"] = "odd"
    assert same_graph(rk.trace(model, X), rk.trace(model, X, fresh=True))


class Strange(nn.Linear):
    def forward(self, x):
        return torch.special.bessel_j0(super().forward(x)).cumsum(1)


def test_what_is_not_understood_is_refused_each_time(exports):
    def error(model):
        with pytest.raises(GraphError) as raised:
            rk.trace(model, X)
        return str(raised.value)

    first, second = Strange(4, 3), Strange(4, 3)
    alone = error(first)
    assert "cumsum" in alone and exports.count == 1
    assert error(first) == alone and exports.count == 1
    assert rk.trace(first, X, strict=False).not_understood and exports.count == 1
    rk.trace(second, X, strict=False)
    assert error(second) == alone and exports.count == 2


def test_a_model_that_cannot_be_traced_is_tried_each_time(exports):
    class Odd(nn.Linear):
        def forward(self, x):
            return x if bool(super().forward(x).sum() > 0) else -x

    model = Odd(4, 3)
    for count in (1, 2):
        with pytest.raises(GraphError):
            rk.trace(model, X)
        assert exports.count == count


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.one(x) if bool((x > 0).all()) else self.other(x)


def test_a_model_that_branches_on_data_is_traced_for_the_data(exports):
    """A trace of it would be right for the branch that was taken alone."""
    model = Branches()
    for example in (torch.ones(2, 4), torch.zeros(2, 4), torch.ones(2, 4)):
        before = exports.count
        found = rk.trace(model, example, strict=False)
        assert exports.count > before
        assert same_graph(found, rk.trace(model, example, strict=False, fresh=True))
    assert "branches on data" in rk.trace.__doc__


# --- examples ---


class Takes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, y=None, *, times=1, parts=()):
        x = x if y is None else x + y["more"]
        for part in parts:
            x = x + part
        return self.layer(x.float()) * times


@dataclasses.dataclass
class Leaf:
    times: int


def example(**given):
    return {"x": torch.zeros(2, 4), **given}


EXAMPLES = {
    "shape": torch.zeros(3, 4),
    "type": torch.zeros(2, 4, dtype=torch.float64),
    "strides": torch.zeros(4, 2).t(),
    "needs a gradient": torch.zeros(2, 4, requires_grad=True),
    "by keyword": example(),
    "a part more": example(y={"more": torch.zeros(2, 4)}),
    "a part of another shape": example(y={"more": torch.zeros(4)}),
    "a number": example(times=2),
    "a number of another type": example(times=2.0),
    "a list": example(parts=[torch.zeros(2, 4)]),
    "a list of two": example(parts=[torch.zeros(2, 4), torch.zeros(2, 4)]),
    "a tuple": (torch.zeros(2, 4),),
}


def test_every_example_is_told_from_the_others():
    model = Takes()
    keys = [trace_key(model, given) for given in (torch.zeros(2, 4), *EXAMPLES.values())]
    assert None not in keys
    assert all(keys[i] != keys[j] for i in range(len(keys)) for j in range(i))


@pytest.mark.parametrize("given", EXAMPLES.values(), ids=EXAMPLES)
def test_values_of_the_example_do_not_matter(given, exports):
    model = Takes()
    first = rk.trace(model, given, strict=False)
    others = torch.utils._pytree.tree_map(
        lambda t: t.detach().clone().copy_(torch.ones(())).requires_grad_(t.requires_grad) if torch.is_tensor(t) else t,
        given,
    )
    found = []
    count = exports.of(lambda: found.append(rk.trace(model, others, strict=False)))
    assert count == 0
    assert same_graph(first, found[0])


def test_the_same_tensor_twice_is_told_from_two():
    x, model = torch.zeros(2, 4), Takes()
    assert trace_key(model, example(parts=[x, x])) != trace_key(model, example(parts=[x, x.clone()]))


# --- hooks of ours ---


def test_a_keeper_that_watches_does_not_hide_a_trace(exports):
    model = net()
    rk.trace(model, X)
    keeper = rk.Keeper(model, torch.optim.Adam(model.parameters()), "redo:period=10", example=X)
    assert exports.of(lambda: rk.trace(model, X)) == 0
    keeper.close()
    assert exports.of(lambda: rk.trace(model, X)) == 0 and exports.count == 1


# --- interrupts, threads, cost ---


def moments(model, files):
    """Return the lines in some files that a call of trace runs through."""
    here = Path(cache.__file__).parent
    own = tuple(f"{here}/{name}" for name in files)
    lines = Lines()
    lines.run(lambda: rk.trace(model, X))
    return [moment for moment in moments_to_raise(lines, thorough=False) if moment[0][0].startswith(own)]


@pytest.mark.parametrize("known", [False, True], ids=["traced", "found"])
def test_an_interrupt_at_any_line_leaves_what_is_right(known):
    model = Own()
    expected = rk.trace(model, X)

    def begin():
        cache._TRACES.pop(model, None)
        if known:
            rk.trace(model, X)

    begin()
    tried = moments(
        model, ("cache", "trace_key", "constants", "facts") if known else ("cache", "tracing", "walking", "garbage")
    )
    for line, count in tried:
        begin()
        with pytest.raises(KeyboardInterrupt):
            Lines(line, count).run(lambda: rk.trace(model, X))
        assert gc.isenabled(), line
        assert same_graph(rk.trace(model, X), expected), line
    assert len(tried) > 40


def test_threads_find_what_belongs_to_their_example():
    model = net()
    wrong = []

    def work(size):
        for _ in range(200):
            key = trace_key(model, torch.zeros(size, 4))
            cache.remember(model, key, graphs[size], ())
            found = cache.recall(model, key)
            if found is not None and found is not graphs[size]:
                wrong.append(size)

    graphs = {size: rk.trace(model, torch.zeros(size, 4)) for size in range(1, 4)}
    threads = [threading.Thread(target=work, args=(size,)) for size in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 1 <= len(cache._TRACES[model]) <= cache.MOST


def test_to_look_is_cheap_and_linear_in_the_modules():
    def facts(layers):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()) for _ in range(layers)))
        times = []
        for _ in range(10):
            start = time.perf_counter()
            key = trace_key(model, X)
            times.append(time.perf_counter() - start)
        assert min(times) < 0.3, "about five milliseconds on an idle machine"
        return len(key)

    assert facts(300) - facts(200) == facts(200) - facts(100)


def test_what_is_too_much_or_cannot_be_seen_is_traced_each_time(exports, monkeypatch):
    model = net()
    model.strange = iter([1, 2])
    assert trace_key(model, X) is None
    assert exports.of(lambda: [rk.trace(model, X) for _ in range(2)]) == 2
    del model.strange
    assert exports.of(lambda: [rk.trace(model, X) for _ in range(2)]) == 1
    monkeypatch.setattr("rekindle.graph.facts.looking.MOST", 100)
    assert trace_key(model, X) is None
