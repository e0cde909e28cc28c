"""A model is traced once: the trace is found again when nothing has changed that it depends on, and only then."""

import functools
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rekindle as rk
from tests.graph.same_graph import Exports, same_graph

X = torch.zeros(2, 4)
PICK = torch.tensor([1, 0, 3, 2, 5, 4])  # a global that `Net` reads


@pytest.fixture
def exports(monkeypatch):
    return Exports(monkeypatch)


class Gate:
    """An object with a state of its own that a model calls."""

    def __init__(self):
        self.on = True

    def __call__(self, x):
        return torch.tanh(x) if self.on else x

    def other(self, x):
        return F.gelu(x) if self.on else x


def scaled(x, by=2.0, *, shift=False):
    return x * by + 1 if shift else x * by


def closed_over(flag):
    def act(x):
        return F.relu(x) if flag else torch.sin(x)

    def set_to(value):
        nonlocal flag
        flag = value

    return act, set_to


class Net(nn.Module):
    """Depends on everything that a forward pass can depend on."""

    floor = 0.0

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.twin = nn.Linear(6, 6)
        self.skip, self.act, self.gate, self.times = True, F.relu, Gate(), 1
        self.config = types.SimpleNamespace(bias=True, inner={"layers": [1, 2]})
        self.register_buffer("order", torch.arange(6))
        self.plain = torch.arange(6)
        self.large = torch.arange(70_000) % 6
        self.loose = [nn.Dropout(0.5), nn.Linear(6, 6)]
        self.mapped = functools.partial(scaled, by=2.0)
        self.closed, self.set_to = closed_over(True)

    def forward(self, x, *, more=0):
        h = self.norm(self.first(x))[:, self.order][:, PICK][:, self.plain][:, self.large[:6]]
        h = self.closed(self.mapped(self.gate(self.act(h))))
        for _ in range(self.times):
            h = h + self.twin(h) if self.skip else self.twin(h)
        if self.config.bias:
            h = h + len(self.config.inner["layers"])
        return self.tail(self.last(self.loose[0](h)).clamp_min(self.floor) + more)

    def tail(self, x):
        return x


# --- what changes a trace ---


def first_again(net):
    net.first = nn.Linear(4, 6, bias=False)


def wider(net):
    net.last = nn.Linear(6, 5)


def reordered(net):
    net.order.copy_(torch.tensor([5, 4, 3, 2, 1, 0]))


def reordered_by_another(net):
    net.order = torch.tensor([5, 4, 3, 2, 1, 0])


def plain_in_place(net):
    net.plain.data[0], net.plain.data[1] = 1, 0


def large_in_place(net):
    net.large[:6] = torch.tensor([1, 0, 2, 3, 4, 5])


def changed_default(net):
    net.mapped = functools.partial(scaled, by=3.0)


def a_set_on_the_class(net):
    net.gate.on = False


def unregistered_mode(net):
    net.loose[0].eval()


def hooked(net):
    net.first.register_forward_hook(lambda module, args, output: output * 2)


def hooked_before(net):
    net.twin.register_forward_pre_hook(lambda module, args: (args[0].flip(1),))


def hooked_with_kwargs(net):
    net.twin.register_forward_pre_hook(lambda module, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True)


def own_forward(net):
    net.twin.forward = lambda x: x


def normed(net):
    nn.utils.parametrizations.weight_norm(net.first)


def spectral(net):
    nn.utils.parametrizations.spectral_norm(net.last)


def old_weight_norm(net):
    nn.utils.weight_norm(net.first)


def of_class(**given):
    """Return a change of class `Net` itself."""

    def change(net):
        for name, value in given.items():
            setattr(Net, name, value)

    return change


def attribute(path, value):
    """Return a change of an attribute."""

    def change(net):
        *way, last = path.split(".")
        setattr(functools.reduce(getattr, way, net), last, value)

    return change


MISSES = {
    "another kind of layer": first_again,
    "another shape": wider,
    "a module replaced": lambda net: setattr(net, "norm", nn.LayerNorm(6)),
    "a module appended": lambda net: setattr(net, "extra", nn.Linear(2, 2)),
    "a parameter replaced": lambda net: setattr(net.last, "bias", None),
    "frozen": lambda net: net.first.requires_grad_(False),
    "moved": lambda net: net.to("meta"),
    "hook": hooked,
    "hook before": hooked_before,
    "hook with keywords": hooked_with_kwargs,
    "instance forward": own_forward,
    "flag": attribute("skip", False),
    "number": attribute("times", 2),
    "number of another type": attribute("times", True),
    "function": attribute("act", F.gelu),
    "lambda": lambda net: setattr(net, "act", lambda x: torch.sin(x)),
    "object's state": a_set_on_the_class,
    "object's method": lambda net: setattr(net, "act", net.gate.other),
    "configuration": attribute("config.bias", False),
    "deep in the configuration": lambda net: net.config.inner["layers"].append(3),
    "arguments of a partial": changed_default,
    "closure": lambda net: net.set_to(False),
    "buffer that picks": reordered,
    "buffer that picks, another": reordered_by_another,
    "plain tensor in place": plain_in_place,
    "large plain tensor in place": large_in_place,
    "mode of a module that is not registered": unregistered_mode,
    "weight_norm": normed,
    "spectral_norm": spectral,
    "old weight_norm": old_weight_norm,
    "class attribute": of_class(floor=-1.0),
    "class forward": of_class(forward=lambda self, x: self.last(self.first(x))),
    "class method": of_class(tail=lambda self, x: x.flip(1)),
    "class property": of_class(skip=property(lambda self: False, lambda self, value: None)),
    "gate of the class": lambda net: setattr(Gate, "__call__", lambda self, x: x),
    "a global tensor in place": lambda net: PICK.copy_(torch.tensor([5, 4, 3, 2, 1, 0])),
    "plasticity_injection": lambda net: rk.plasticity_injection_(net, head="last"),
}


@pytest.fixture(autouse=True)
def classes_as_they_were():
    own, call, pick = dict(vars(Net)), Gate.__call__, PICK.clone()
    yield
    for name in set(vars(Net)) - set(own):
        delattr(Net, name)
    for name in ("floor", "forward", "tail"):
        setattr(Net, name, own[name])
    Gate.__call__ = call
    PICK.copy_(pick)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("change", MISSES.values(), ids=MISSES)
def test_a_change_is_noticed(change, exports):
    net = Net()
    before = rk.trace(net, X, strict=False)
    assert exports.of(lambda: rk.trace(net, X, strict=False)) == 0
    change(net)
    x = X.to(net.first.weight.device if hasattr(net.first, "weight") else "cpu")
    found = []
    assert exports.of(lambda: found.append(rk.trace(net, x, strict=False))) == 1
    assert same_graph(found[0], rk.trace(net, x, strict=False, fresh=True))
    assert exports.of(lambda: rk.trace(net, x, strict=False)) == 0, "what was found is remembered"
    assert before is not found[0]


# --- what does not ---


def trained(net):
    net.train()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()


HITS = {
    "nothing": lambda net: None,
    "trained": trained,
    "mode": lambda net: net.train(not net.training),
    "loaded": lambda net: net.load_state_dict(Net().state_dict()),
    "apply": lambda net: net.apply(lambda module: None),
    "gradients": lambda net: [setattr(p, "grad", torch.zeros_like(p)) for p in net.parameters()],
    "running statistics": lambda net: net.norm.running_mean.add_(1),
    "the same layer anew": lambda net: setattr(net, "first", nn.Linear(4, 6)),
    "the same buffer anew": lambda net: setattr(net, "order", net.order.clone()),
    "treated": lambda net: rk.apply_("full_reset", net),
    "hook and off again": lambda net: net.first.register_forward_hook(lambda *_: None).remove(),
    "hook on state dicts": lambda net: net.register_state_dict_post_hook(lambda *_: None),
    "persistence of a buffer": lambda net: net._non_persistent_buffers_set.add("order"),
}


@pytest.mark.parametrize("change", HITS.values(), ids=HITS)
def test_a_trace_is_found_again(change, exports):
    net = Net()
    rk.trace(net, X, strict=False)
    change(net)
    found = []
    assert exports.of(lambda: found.append(rk.trace(net, X, strict=False))) == 0
    assert same_graph(found[0], rk.trace(net, X, strict=False, fresh=True))


def test_a_change_that_is_taken_back_finds_the_trace_of_before(exports):
    net = Net()
    rk.trace(net, X, strict=False)
    handle = net.first.register_forward_hook(lambda module, args, output: output * 2)
    net.skip = False
    assert exports.of(lambda: rk.trace(net, X, strict=False)) == 1
    handle.remove()
    net.skip = True
    assert exports.of(lambda: rk.trace(net, X, strict=False)) == 0


def test_ties_are_noticed_when_they_come_and_go(exports):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    assert not rk.trace(net, X).aliases
    net[2].weight = net[0].weight
    assert rk.trace(net, X).aliases == {"0.weight": ("2.weight",)}
    net[2].weight = nn.Parameter(net[0].weight.detach().clone())
    assert not rk.trace(net, X).aliases
    assert exports.count == 2


def test_a_lambda_in_the_place_of_one_that_is_gone_is_another(exports):
    """A new function often has the id of the one before it."""
    net, ids = Net(), set()
    for power in range(1, 30):
        net.act = None
        net.act = eval(f"lambda x: x ** {power}")
        ids.add(id(net.act))
        assert exports.of(lambda: rk.trace(net, X, strict=False)) == 1
    assert len(ids) < 29, "no id was used twice: the test shows nothing"


@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.no_grad(),
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        lambda: torch.nn.utils.parametrize.cached(),
    ],
    ids=["autocast", "no_grad", "sdp", "parametrize"],
)
def test_torch_s_modes_are_noticed(mode, exports):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    rk.trace(net, X)
    with mode():
        assert exports.of(lambda: rk.trace(net, X)) == 1
        assert exports.of(lambda: rk.trace(net, X)) == 0
    assert exports.of(lambda: rk.trace(net, X)) == 0


def test_the_default_type_is_noticed(exports):
    net = nn.Linear(4, 2)
    rk.trace(net, X)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert exports.of(lambda: rk.trace(net, X)) == 1
    finally:
        torch.set_default_dtype(before)


def test_types_are_noticed(exports):
    net = nn.Linear(4, 2)
    rk.trace(net, X)
    assert exports.of(lambda: rk.trace(net.double(), X.double())) == 1


def test_a_hook_for_all_modules_is_noticed(exports):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    rk.trace(net, X)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 2)
    try:
        assert exports.of(lambda: rk.trace(net, X)) == 1
    finally:
        handle.remove()
    assert exports.of(lambda: rk.trace(net, X)) == 0


def test_a_compiled_part_is_noticed_and_a_compiled_whole_is_the_same_model(exports):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    before = rk.trace(net, X)
    assert exports.of(lambda: rk.trace(torch.compile(net), X)) == 0
    net[0] = torch.compile(net[0])
    found = []
    assert exports.of(lambda: found.append(rk.trace(net, X))) == 1
    assert same_graph(found[0], before), "names are without wrappers"
    assert exports.of(lambda: rk.trace(net, X)) == 0


def test_a_class_that_is_held_as_configuration_is_seen(exports):
    class Base:
        flag = True

    class Settings(Base):
        pass

    class Configured(nn.Module):
        def __init__(self):
            super().__init__()
            self.cfg, self.a, self.b = Settings, nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.b(self.a(x)) if self.cfg.flag else self.a(x)

    model = Configured()
    assert exports.of(lambda: rk.trace(model, X)) == 1 and exports.of(lambda: rk.trace(model, X)) == 0
    Base.flag = False
    assert [group.name for group in rk.trace(model, X).groups] == ["a"]
