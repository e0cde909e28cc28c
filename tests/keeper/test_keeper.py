"""The Keeper in a loop that is the user's own: resuming, several optimizers, compilers, no cost without need."""

import copy
import io

import pytest
import torch
from torch.optim import SGD, Adam
from torch.utils._python_dispatch import TorchDispatchMode

import rekindle as rk
from rekindle.testing.aged import hooks, moments
from tests.keeper.keeping import EXAMPLE, METHODS, backward, batch, kill, network, same, train, values

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
    monkeypatch.setattr("rekindle.methods.planning.trace", None)  # calling it would raise
    monkeypatch.setattr("rekindle.methods.planning.scan", None)
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
    assert len(keeper._engaged.initial) == 6 and len(keeper._engaged.initial._copies) == 2
    assert not rk.Keeper(model, None, "l2", example=EXAMPLE)._engaged.initial._copies


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


# --- what a model is called with ---


def test_a_batch_with_labels_is_an_example_and_new_data_needs_no_loss():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

        def forward(self, x, labels=None):
            logits = self.last(self.first(x).relu())
            loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
            return {"logits": logits, "loss": loss}

    data = [{"x": torch.randn(6, 4), "labels": torch.randint(3, (6,))} for _ in range(3)]
    model = Holding()
    with torch.no_grad():
        model.first.bias[:3] = -100.0  # dead
    optimizer = Adam(model.parameters())
    keeper = rk.Keeper(model, optimizer, ["redo:period=2", "soft_rescale", "dash"], example=data[0])
    for one in data:
        optimizer.zero_grad()
        (model(**one)["loss"] + keeper.penalty()).backward()
        optimizer.step()
        keeper.step()
    assert keeper.recycled["first"] >= 3
    (record,) = keeper.boundary(data)
    assert record.changed
