"""The Keeper in a loop that is the user's own: resuming, several optimizers, compilers, boundaries, misuse."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.utils._python_dispatch import TorchDispatchMode

import rekindle as rk
from rekindle.core import grafting
from rekindle.core.apply import moments
from rekindle.core.errors import EditError, KeeperError, PlanError, SettingsError
from rekindle.core.several import Several
from rekindle.testing.aged import hooks

EXAMPLE = torch.zeros(1, 8)
METHODS = ["soft_rescale", "l2_init:strength=0.01", "redo:period=2,threshold=0.3", "cbp:rate=0.1,maturity=1", "snr"]


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 4))


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(32, 8, generator=draw), torch.randint(0, 4, (32,), generator=draw)


def backward(model, keeper, inputs, targets, scale=1.0) -> None:
    ((nn.functional.cross_entropy(model(inputs), targets) + keeper.penalty()) * scale).backward()


def train(model, optimizers, keeper, steps, first=0) -> None:
    optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
    for number in range(first, first + steps):
        for each in optimizers:
            each.zero_grad()
        backward(model, keeper, *batch(number))
        for each in optimizers:
            each.step()
        keeper.step()


def values(model) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def same(a, b) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def kill(model, unit: int = 3) -> None:
    """Make a unit of the first layer dormant."""
    model[0].weight.data[unit], model[0].bias.data[unit] = 0.0, -9.0


# --- resuming ---


@pytest.mark.parametrize(
    "methods", [*METHODS, METHODS], ids=lambda m: m.partition(":")[0] if isinstance(m, str) else "all"
)
def test_resumes_bit_equal(methods):
    model = network()
    optimizer = Adam(model.parameters(), 0.05)
    keeper = rk.Keeper(model, optimizer, methods, example=EXAMPLE, seed=7)
    train(model, optimizer, keeper, 3)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), keeper.state_dict()], file)
    train(model, optimizer, keeper, 3, first=3)
    file.seek(0)
    saved = torch.load(file, weights_only=True)  # tensors and plain data alone
    again = network(seed=5)
    optimizer_again = Adam(again.parameters(), 0.05)
    again.load_state_dict(saved[0])
    optimizer_again.load_state_dict(saved[1])
    resumed = rk.Keeper(again, optimizer_again, methods, example=EXAMPLE, seed=7)
    resumed.load_state_dict(saved[2])
    train(again, optimizer_again, resumed, 3, first=3)
    assert same(values(again), values(model))
    assert resumed.steps == keeper.steps == 6 and resumed.recycled == keeper.recycled
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert same(moments(optimizer, a), moments(optimizer_again, b))


def test_a_run_without_its_state_goes_elsewhere():
    """Otherwise the test above would show nothing."""
    ends = []
    for loaded in (True, False):
        model = network()
        optimizer = SGD(model.parameters(), 0.1)
        keeper = rk.Keeper(model, optimizer, METHODS, example=EXAMPLE)
        train(model, optimizer, keeper, 3)
        resumed = rk.Keeper(model, optimizer, METHODS, example=EXAMPLE)
        if loaded:
            resumed.load_state_dict(keeper.state_dict())
        keeper.close()
        train(model, optimizer, resumed, 3, first=3)
        ends.append(values(model))
    assert not same(*ends)


def test_a_state_is_a_copy():
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    keeper = rk.Keeper(model, optimizer, METHODS, example=EXAMPLE)
    train(model, optimizer, keeper, 2)
    state = keeper.state_dict()
    kept = copy.deepcopy(state)
    train(model, optimizer, keeper, 2, first=2)
    keeper.load_state_dict(state)
    train(model, optimizer, keeper, 2, first=2)
    assert same(tensors(state), tensors(kept)) and state["steps"] == kept["steps"] == 2
    assert keeper.steps == 4


def tensors(tree) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


# --- loops ---


def test_accumulated_batches_are_one_step():
    whole, halves = network(), network()
    kept = []
    for model, parts in ((whole, 1), (halves, 2)):
        kill(model)
        optimizer = SGD(model.parameters(), 0.1)
        keeper = rk.Keeper(model, optimizer, ["l2:strength=0.01", "redo:period=2,threshold=0.1"], example=EXAMPLE)
        for number in range(2):
            inputs, targets = batch(number)
            optimizer.zero_grad()
            for x, y in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
                backward(model, keeper, x, y, 1 / parts)
            optimizer.step()
            keeper.step()
        kept.append(keeper)
    assert kept[0].recycled == kept[1].recycled and kept[0].recycled["0"] >= 1
    assert kept[0].steps == kept[1].steps == 2
    for a, b in zip(values(whole), values(halves), strict=True):
        torch.testing.assert_close(a, b)


def test_evaluation_is_not_counted():
    ends = []
    for evaluate in (False, True):
        model = network()
        optimizer = SGD(model.parameters(), 0.1)
        keeper = rk.Keeper(model, optimizer, "redo:period=1,threshold=0.4", example=EXAMPLE)
        optimizer.zero_grad()
        backward(model, keeper, *batch(0))
        if evaluate:
            with torch.no_grad():
                model(100 * torch.ones(500, 8))
        optimizer.step()
        keeper.step()
        ends.append((values(model), keeper.recycled))
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1] and ends[0][1]


@pytest.mark.parametrize("shared", [False, True])
def test_moments_are_cleared_in_each_of_several_optimizers(shared):
    model = network()
    kill(model)
    split = [list(model[0].parameters()), list(model[2].parameters()) + list(model[4].parameters())]
    optimizers = [
        Adam(split[0], 0.01),
        Adam(split[1], 0.01),
        SGD(model.parameters() if shared else split[1], 0.01, 0.9),
    ]
    keeper = rk.Keeper(model, optimizers, "redo:period=3,threshold=0.02", example=EXAMPLE)
    train(model, optimizers, keeper, 2)
    known = [set(map(id, each.state)) for each in optimizers]
    old = [moment.clone() for each in optimizers for moment in moments(each, model[2].weight)]
    assert all(moment[:, 3].shape == (10,) for moment in old) and len(old) == 3
    model[2].weight.grad = None
    with torch.no_grad():
        for each in optimizers:
            for p in (model[0].weight, model[2].weight):
                for moment in moments(each, p):
                    moment.add_(1.0)
    for each in optimizers:
        each.zero_grad()
    backward(model, keeper, *batch(9))
    for each in optimizers:
        each.step()
    keeper.step()
    assert keeper.recycled["0"] >= 1
    written = [moment for each in optimizers for moment in moments(each, model[0].weight)]
    read = [moment for each in optimizers for moment in moments(each, model[2].weight)]
    assert len(written) == (3 if shared else 2) and len(read) == 3
    assert all(m[3].abs().max() == 0 and m[4].abs().max() > 0 for m in written)
    assert all(m[:, 3].abs().max() == 0 and m[:, 4].abs().max() > 0 for m in read)
    assert [set(map(id, each.state)) for each in optimizers] == known, "an optimizer got state of a foreign parameter"
    for each in optimizers:
        each.state_dict()  # torch refuses if there is state of a parameter that is not its own


def test_several_optimizers_lose_and_get_back_state_of_their_own():
    a, b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    pair = [Adam([a]), Adam([a, b])]
    for each in pair:
        for p in (a, b):
            p.grad = torch.ones(2)
        each.step()
    before = [{id(p): dict(s) for p, s in each.state.items()} for each in pair]
    state = Several(pair).state
    assert len(state) == 2 and set(state) == {a, b}
    taken = {p: state[p] for p in (a, b)}
    for p in (a, b):
        state.pop(p)
    assert not pair[0].state and not pair[1].state and state.get(a) is None
    state.update(taken)
    assert [{id(p): dict(s) for p, s in each.state.items()} for each in pair] == before


# --- compilers ---


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("when", ["before", "after", "after it ran"])
def test_compiled_models_do_as_others(backend, when):
    torch.compiler.reset()
    plain, model = network(), network()
    for net in (plain, model):
        kill(net)
    compiled = torch.compile(model, backend=backend)
    if when == "after it ran":
        compiled(batch(0)[0]).sum().backward()
    pairs = []
    for net, run in ((plain, plain), (model, compiled)):
        optimizer = SGD(net.parameters(), 0.1)
        given = net if when == "before" else run
        keeper = rk.Keeper(given, optimizer, ["soft_rescale", "redo:period=2,threshold=0.1"], example=EXAMPLE)
        train(run, optimizer, keeper, 4)
        pairs.append(keeper)
    assert pairs[0].recycled == pairs[1].recycled and pairs[0].recycled["0"] >= 1
    for a, b in zip(values(plain), values(model), strict=True):
        torch.testing.assert_close(a, b)
    pairs[1].close()
    assert not any(hooks(model))
    torch.compiler.reset()


# --- at no cost when nothing is to do ---


class Counting(TorchDispatchMode):
    """Counts every operation on tensors."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("methods", [[], ["fire", "head_reset"]])
def test_costs_nothing_without_per_step_methods(methods, monkeypatch):
    monkeypatch.setattr("rekindle.keeper.trace", None)  # calling it would raise
    monkeypatch.setattr("rekindle.keeper.scan", None)
    model = network()
    optimizer = Adam(model.parameters())
    plain = hooks(model)
    with Counting() as count:
        keeper = rk.Keeper(model, optimizer, methods, example=EXAMPLE)
        assert keeper.penalty() == 0.0 and isinstance(keeper.penalty(), float)
        for _ in range(3):
            keeper.step()
        if not methods:
            assert keeper.boundary() == []
        keeper.rebase()
        keeper.load_state_dict(keeper.state_dict())
    assert count.calls == 0 and hooks(model) == plain and keeper.steps == 3
    with Counting() as count:
        torch.zeros(1) + 1
    assert count.calls, "the counter counts"


def test_only_what_a_method_asks_for_is_copied():
    model = network()
    keeper = rk.Keeper(model, SGD(model.parameters(), 0.1), "l2_init:skip=[!4]*", example=EXAMPLE)
    assert len(keeper._initial) == 6 and len(keeper._initial._copies) == 2
    assert not rk.Keeper(model, None, "l2", example=EXAMPLE)._initial._copies


def test_quiet_between_two_recyclings():
    """Hooks that are there but not active do nothing."""
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    with Counting() as plain:
        model(batch(0)[0])
    keeper = rk.Keeper(model, optimizer, "redo:period=1000", example=EXAMPLE)
    with Counting() as count:
        model(batch(0)[0])
        keeper.step()
    assert count.calls == plain.calls


# --- boundaries ---


def test_boundary_records_and_other_seeds_each_time():
    model = network()
    keeper = rk.Keeper(model, Adam(model.parameters()), ["full_reset", "fire:skip=0.*"], example=EXAMPLE)
    drawn = []
    for _ in range(2):
        records = keeper.boundary()
        assert [record.method.key for record in records] == ["full_reset", "fire"]
        drawn.append(model[0].weight.detach().clone())
    assert not torch.equal(*drawn)
    other = network()
    elsewhere = rk.Keeper(other, Adam(other.parameters()), "full_reset", example=EXAMPLE, seed=1)
    elsewhere.boundary()
    assert not any(torch.equal(other[0].weight, weight) for weight in drawn), "seeds 0 and 1 share their draws"


def test_boundaries_go_on_after_a_resume():
    model, again = network(), network()
    keeper = rk.Keeper(model, None, "full_reset")
    keeper.boundary()
    resumed = rk.Keeper(again, None, "full_reset")
    resumed.load_state_dict(keeper.state_dict())
    keeper.boundary()
    resumed.boundary()
    assert same(values(model), values(again))


def test_boundary_with_data_is_not_seen_by_recyclers():
    """The same model, treated before the Keeper comes and at its boundary."""
    data = [(50 * batch(5)[0], batch(5)[1])]
    ends = []
    for inside in (False, True):
        model = network()
        if not inside:
            rk.apply_("dash", model, data=data)
        optimizer = SGD(model.parameters(), 0.1)
        keeper = rk.Keeper(model, optimizer, "redo:period=1,threshold=0.4", example=EXAMPLE)
        if inside:
            keeper.boundary(data, methods="dash")
        train(model, optimizer, keeper, 1)
        ends.append((values(model), keeper.recycled))
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1] and ends[0][1]


def test_boundary_with_data_and_loss():
    model, start = network(), network()
    optimizer = Adam(model.parameters())
    keeper = rk.Keeper(model, optimizer, ["dash", "redo:period=5"], example=EXAMPLE)
    train(model, optimizer, keeper, 1)
    (record,) = keeper.boundary([batch(3)], loss=lambda net, pair: net(pair[0]).square().mean())
    assert any(row.changed for row in record.rows) and not same(values(model), values(start))
    with pytest.raises(PlanError, match="data for dash"):
        keeper.boundary()


def test_a_failing_boundary_changes_nothing():
    model = network()
    optimizer = Adam(model.parameters())
    keeper = rk.Keeper(
        model, optimizer, ["plasticity_injection", "dash", "redo:period=1,threshold=0.4"], example=EXAMPLE
    )
    train(model, optimizer, keeper, 1)
    before, names = values(model), [name for name, _ in model.named_parameters()]
    with pytest.raises(PlanError, match="data for dash"):
        keeper.boundary()
    assert same(values(model), before) and [name for name, _ in model.named_parameters()] == names
    train(model, optimizer, keeper, 1, first=1)
    assert keeper.steps == 2


def first_start(keeper) -> torch.Tensor:
    """Return what l2_init, the first method, takes for the initial value of its first tensor."""
    return next(iter(keeper.state_dict()["running"][0]["start"].values()))


@pytest.mark.parametrize("method", ["plasticity_injection", "layerwise"])
@pytest.mark.parametrize("several", [False, True])
def test_structure_may_change_at_a_boundary(method, several):
    model = network()
    optimizers = [Adam(model[:2].parameters(), 0.01), Adam(model[2:].parameters(), 0.01)]
    if not several:
        optimizers = [Adam(model.parameters(), 0.01)]
    methods = ["l2_init:strength=0.1", "soft_rescale", "redo:period=2,threshold=0.2", method]
    keeper = rk.Keeper(model, optimizers, methods, example=EXAMPLE)
    start = first_start(keeper)
    train(model, optimizers, keeper, 3)
    (record,) = keeper.boundary([batch(0)])
    assert record.grafts and keeper.steps == 3
    assert not model[0].weight.requires_grad or torch.equal(first_start(keeper), start)
    before = values(model)
    kill(model) if model[0].weight.requires_grad else None
    train(model, optimizers, keeper, 3, first=3)
    assert keeper.steps == 6 and not same(values(model), before)
    live = {id(p) for p in model.parameters()}
    assert all(id(p) in live for each in optimizers for p in each.state)
    if method == "plasticity_injection":
        assert keeper.recycled["0"] >= 1
    keeper.close()
    assert not any(hooks(model)) or method == "layerwise"


def test_rebase_outlives_a_change_of_structure():
    model = network()
    optimizer = SGD(model.parameters(), 0.1)
    keeper = rk.Keeper(model, optimizer, ["l2_init", "plasticity_injection"], example=EXAMPLE)
    train(model, optimizer, keeper, 2)
    keeper.rebase()
    rebased = model[0].weight.detach().clone()
    train(model, optimizer, keeper, 2, first=2)
    keeper.boundary()
    assert torch.equal(first_start(keeper), rebased)


def test_a_given_reference_outlives_a_change_of_structure():
    model = network()
    reference = network(3)
    keeper = rk.Keeper(
        model, None, ["l2_init", "plasticity_injection"], example=EXAMPLE, reference=reference.state_dict()
    )
    keeper.boundary()
    starts = keeper.state_dict()["running"][0]["start"]
    assert torch.equal(starts["0.weight"], reference[0].weight)
    assert torch.equal(starts["4.new.weight"], model[4].new.weight)


# --- misuse ---


def made(methods="redo:period=1", optimizer=None, **given) -> tuple[nn.Module, rk.Keeper]:
    model = network()
    return model, rk.Keeper(model, optimizer, methods, **{"example": EXAMPLE, **given})


@pytest.mark.parametrize("call", ["penalty", "step", "boundary", "rebase", "state_dict"])
def test_not_before_attach_and_not_after_close(call):
    keeper = rk.Keeper(methods="l2")
    with pytest.raises(KeeperError, match="attach"):
        getattr(keeper, call)()
    model = network()
    keeper.attach(model)
    getattr(keeper, call)()
    keeper.close()
    keeper.close()
    with pytest.raises(KeeperError, match="make a new Keeper"):
        getattr(keeper, call)()
    with pytest.raises(KeeperError, match="not attached yet"):
        keeper.attach(model)


def test_attached_once_only():
    model, keeper = made()
    with pytest.raises(KeeperError, match="works on a model"):
        keeper.attach(model)
    with pytest.raises(KeeperError, match="without a model"):
        rk.Keeper(methods="l2").load_state_dict({})
    keeper.close()
    with pytest.raises(KeeperError, match="closed"):
        keeper.load_state_dict({})


def replace_parameter(model):
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def replace_module(model):
    model[4] = nn.Linear(10, 4)


def add_module(model):
    model.append(nn.Linear(4, 4))


def load_with_assign(model):
    model.load_state_dict(network(1).state_dict(), assign=True)


def make_double(model):
    model.double()


def move_and_replace(model):
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.to(torch.bfloat16).to(torch.float32)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


CHANGES = [replace_parameter, replace_module, add_module, load_with_assign, make_double, move_and_replace]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_swapped_model_is_noticed(change):
    model, keeper = made(["l2", "redo:period=1"])
    change(model)
    for call in (keeper.penalty, keeper.step, keeper.boundary):
        with pytest.raises(KeeperError, match="replaced, or moved"):
            call()
    keeper.close()


def test_what_keeps_the_parameters_is_not_misuse():
    model, keeper = made("l2")
    model.load_state_dict(network(1).state_dict())
    model.to(torch.float32).eval().train()
    model[0].requires_grad_(False)
    keeper.penalty()
    keeper.step()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"methods": ["l2:strength=0.5"]}, "L2"),
        ({"methods": []}, "methods"),
        ({"seed": 3}, "seed 3"),
    ],
)
def test_a_state_of_another_keeper(change, word):
    _, keeper = made("redo:period=1")
    state = keeper.state_dict()
    model = network()
    other = rk.Keeper(model, None, **{"methods": "redo:period=1", "example": EXAMPLE, **change})
    with pytest.raises(KeeperError, match=word):
        other.load_state_dict(state)
    with pytest.raises(KeeperError, match="without boundaries, methods"):
        other.load_state_dict(model.state_dict())


def test_recyclers_ask_for_an_example():
    with pytest.raises(KeeperError, match="pass example="):
        made("redo", example=None)


def test_optimizers_that_train_something_else():
    with pytest.raises(KeeperError, match="holds none of them"):
        made(optimizer=Adam(network().parameters()))
    with pytest.raises(KeeperError, match="got: a Linear"):
        made(optimizer=[nn.Linear(2, 2)])
    model = network()
    rk.Keeper(model, Adam(model[4].parameters()), "l2")  # a part is enough: the rest may be frozen or trained elsewhere


@pytest.mark.parametrize(
    ("methods", "error", "word"),
    [
        ("rado", SettingsError, "a method: "),
        ("redo:periods=3", SettingsError, "settings of Redo"),
        ([object()], KeeperError, "rekindle list"),
        ([None], KeeperError, "got: None"),
        ([type(rk.method("redo"))], KeeperError, "spec strings or settings"),
        ("l2+muon", KeeperError, "rk.muon"),
    ],
)
def test_what_is_no_method_for_a_keeper(methods, error, word):
    with pytest.raises(error) as caught:
        made(methods)
    assert word in str(caught.value) and all((caught.value.expected, caught.value.got, caught.value.fix))


def test_per_step_methods_are_not_for_boundaries_and_steps_need_passes():
    model, keeper = made("redo:period=1")
    with pytest.raises(PlanError, match="one-shot"):
        keeper.boundary(methods="redo")
    with pytest.raises(PlanError, match="forward pass with gradients"):
        keeper.step()


def test_no_hook_stays_when_a_method_cannot_start():
    class Broken:
        key, card, observes = "broken", rk.method("redo").card, ("magnitude",)

        def start(self, site):
            raise EditError(expected="a", got="b", fix="c")

    model = network()
    plain = hooks(model)
    keeper = rk.Keeper(methods=[Broken()], example=EXAMPLE)
    with pytest.raises(EditError):
        keeper.attach(model)
    assert hooks(model) == plain
    with pytest.raises(KeeperError, match="without a model"):
        keeper.step()


def test_no_hook_stays_after_close():
    model = network()
    plain = hooks(model)
    keeper = rk.Keeper(model, None, METHODS, example=EXAMPLE)
    assert hooks(model) != plain
    keeper.close()
    assert hooks(model) == plain


def test_a_copy_of_the_model_is_not_watched():
    ends = []
    for copied in (False, True):
        model = network()
        optimizer = SGD(model.parameters(), 0.1)
        keeper = rk.Keeper(model, optimizer, "redo:period=1,threshold=0.4", example=EXAMPLE)
        if copied:
            copy.deepcopy(model)(100 * torch.ones(500, 8))
        train(model, optimizer, keeper, 1)
        ends.append(keeper.recycled)
    assert ends[0] == ends[1] and ends[0]


def test_draws_do_not_touch_the_global_generator():
    model, keeper = made("redo:period=1,threshold=0.9")
    torch.manual_seed(3)
    state = torch.get_rng_state()
    model(batch(0)[0]).sum().backward()
    keeper.step()
    assert keeper.recycled and torch.equal(torch.get_rng_state(), state)


def test_reset_compiler_is_not_needed_without_one(monkeypatch):
    monkeypatch.delitem(grafting.sys.modules, "torch._dynamo", raising=False)
    grafting.reset_compiler()
    assert "torch._dynamo" not in grafting.sys.modules
