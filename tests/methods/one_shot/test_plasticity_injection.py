"""Plasticity injection: nothing changes at that moment, what should rest does, what should learn does."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.inserted import Injected
from rekindle.errors import EditError, PlanError
from rekindle.testing import ZOO

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.5),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1),
}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def batch(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def train(model, optimizer, x, steps=3):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)  # gradients of zeros: the hard case for what must not move
        model(x).square().sum().backward()
        optimizer.step()


def values(module):
    return [tensor.detach().clone() for tensor in module.state_dict().values()]


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_the_formula_by_hand():
    model = nn.Sequential(nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[2.0, 3.0]]))
    rk.plasticity_injection_(model, head="0")
    with torch.no_grad():
        model[0].new.weight.copy_(torch.tensor([[10.0, 0.0]]))
        model[0].twin.weight.copy_(torch.tensor([[0.0, 1.0]]))
    assert model(torch.tensor([[1.0, 1.0]])).item() == 5 + 10 - 1


@pytest.mark.parametrize("name", ZOO)
def test_outputs_do_not_change_by_a_bit(name):
    member = ZOO[name]
    if member.requires:
        pytest.importorskip(member.requires)
    model, example = member.build(), member.example()
    args, kwargs = ((), example) if isinstance(example, dict) else ((example,), {})
    before = model(*args, **kwargs)
    before = getattr(before, "logits", before).detach().clone()
    if name in ("gpt", "gpt2", "tied_autoencoder", "mlp_functional"):
        with pytest.warns(rk.NoEffectWarning, match="tied|module of its own"):
            rk.plasticity_injection_(model, example=example)
        return
    record = rk.plasticity_injection_(model, example=example)
    after = model(*args, **kwargs)
    assert torch.equal(getattr(after, "logits", after), before)
    assert len(record.surgery) == (2 if name == "dueling" else 1)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_what_is_frozen_does_not_move_and_the_rest_does(make):
    model, x = net(), batch(16, 4)
    optimizer = OPTIMIZERS[make](model.parameters())
    train(model, optimizer, x)
    rk.plasticity_injection_(model, optimizer, example=x)
    head = model[4]
    frozen, twin, new, trunk = (values(part) for part in (head.frozen, head.twin, head.new, model[0]))
    train(model, optimizer, x, steps=5)
    assert equal(frozen, values(head.frozen)) and equal(twin, values(head.twin))
    for before, part in ((new, head.new), (trunk, model[0])):
        assert not any(torch.equal(a, b) for a, b in zip(before, values(part), strict=True))
    assert model[0].weight.grad.abs().sum() > 0


def test_even_an_optimizer_that_was_not_given_moves_nothing_frozen():
    model, x = net(), batch(16, 4)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    train(model, optimizer, x)
    record = rk.plasticity_injection_(model, example=x)
    assert any("hand 4.new.weight, 4.new.bias to yours" in notice for notice in record.notices)
    frozen = values(model[4].frozen)
    train(model, optimizer, x)
    assert equal(frozen, values(model[4].frozen))


def test_the_trunk_feels_the_same_gradient_at_first():
    model, x = net(), batch(16, 4)
    model(x).square().sum().backward()
    before = model[0].weight.grad.clone()
    model.zero_grad()
    rk.plasticity_injection_(model, example=x)
    model(x).square().sum().backward()
    assert torch.allclose(model[0].weight.grad, before, rtol=1e-5, atol=1e-6)


def test_new_parameters_take_the_old_ones_place_in_their_group():
    model, x = net(), batch(16, 4)
    groups = [{"params": list(model[:4].parameters()), "lr": 0.1}, {"params": list(model[4].parameters()), "lr": 0.7}]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    train(model, optimizer, x)
    head = model[4]
    record = rk.plasticity_injection_(model, optimizer, example=x)
    assert [id(p) for p in optimizer.param_groups[1]["params"]] == [id(p) for p in model[4].new.parameters()]
    assert optimizer.param_groups[1]["lr"] == 0.7 and head.weight not in optimizer.state
    assert len(optimizer.param_groups[0]["params"]) == 4
    record.undo()
    assert model[4] is head and [id(p) for p in optimizer.param_groups[1]["params"]] == [
        id(p) for p in head.parameters()
    ]
    assert optimizer.state[head.weight]["momentum_buffer"].any() and head.weight.requires_grad
    train(model, optimizer, x)


def test_named_parameters_in_the_optimizer_stay_named():
    model, x = net(), batch(16, 4)
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    rk.plasticity_injection_(model, optimizer, example=x)
    assert optimizer.param_groups[0]["param_names"][-2:] == ["4.new.weight", "4.new.bias"]


def test_a_head_that_this_optimizer_does_not_train_is_named():
    model, x = net(), batch(16, 4)
    record = rk.plasticity_injection_(model, torch.optim.SGD(model[0].parameters(), lr=0.1), example=x)
    assert any("not in this optimizer" in n and "4.new.weight" in n for n in record.notices)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 6)
        self.critic = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 1))
        self.policy = nn.Linear(6, 2)

    def forward(self, x):
        h = self.trunk(x).relu()
        return self.critic(h), self.policy(h)


def test_a_whole_submodule_with_statistics_and_dropout():
    model, x = Critic(), batch(16, 4)
    model(x)
    model.eval()
    before = model(x)
    model.train()
    record = rk.plasticity_injection_(model, head="critic")
    assert any("running statistics" in notice for notice in record.notices)
    model.eval()
    assert all(torch.equal(a, b) for a, b in zip(before, model(x), strict=True))
    model.train()
    assert not model.critic.frozen.training and not model.critic.twin[1].training and model.critic.new[1].training
    kept = values(model.critic.frozen) + values(model.critic.twin)
    model(x)
    assert equal(kept, values(model.critic.frozen) + values(model.critic.twin))
    record.undo()
    assert model.critic.training and model.critic[3].training


def test_several_heads_by_path_and_by_spec():
    a, b = Critic().eval(), Critic().eval()
    rk.plasticity_injection_(a, head=("critic", "policy"))
    rk.apply_("plasticity_injection:head=critic|policy", b)
    for model in (a, b):
        assert isinstance(model.critic, Injected) and isinstance(model.policy, Injected)


def test_a_head_registered_twice_is_replaced_at_both_places():
    model = nn.Module()
    model.a = nn.Linear(2, 2)
    model.b = model.a
    rk.plasticity_injection_(model, head="b")
    assert isinstance(model.a, Injected) and model.a is model.b


def test_a_list_of_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 1)

        def forward(self, x, scale=1.0):
            return {"a": self.a(x) * scale, "b": (self.b(x), x.argmax(1))}

    model, x = nn.Sequential(Two()), batch(4, 3)
    before = model(x)
    rk.plasticity_injection_(model, head="0")
    after = model(x)
    assert torch.equal(before["a"], after["a"]) and torch.equal(before["b"][0], after["b"][0])
    assert torch.equal(before["b"][1], after["b"][1])


@pytest.mark.parametrize("by_path", [True, False])
def test_again_and_again(by_path):
    model, x = net(), batch(16, 4)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    start = len(optimizer.param_groups[0]["params"])
    draws = []
    for _ in range(3):
        train(model, optimizer, x)
        before = model(x)
        given = {"head": "4"} if by_path else {"example": x}
        rk.plasticity_injection_(model, optimizer, **given)
        assert torch.equal(model(x), before)
        draws.append(model[4].new.weight.detach().clone())
    assert not torch.equal(draws[0], draws[1]) and not torch.equal(draws[1], draws[2])
    assert isinstance(model[4].frozen.frozen.frozen, nn.Linear)
    assert [n for n, p in model[4].named_parameters() if p.requires_grad] == ["new.weight", "new.bias"]
    assert len(optimizer.param_groups[0]["params"]) == start
    kept = values(model[4].frozen) + values(model[4].twin)
    train(model, optimizer, x)
    assert equal(kept, values(model[4].frozen) + values(model[4].twin))


def test_save_and_load():
    model, x = net(), batch(16, 4)
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    rk.plasticity_injection_(model, optimizer, example=x)
    train(model, optimizer, x)
    rk.plasticity_injection_(model, optimizer, head="4", seed=7)
    train(model, optimizer, x)
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=True)

    same_injections = net()
    rk.plasticity_injection_(same_injections, head="4")
    rk.plasticity_injection_(same_injections, head="4")
    same_injections.load_state_dict(loaded["model"])
    fresh = net()
    again = OPTIMIZERS["adamw"](fresh.parameters())
    with pytest.raises(RuntimeError, match="Unexpected key"):
        fresh.load_state_dict(loaded["model"])
    rk.restore_(fresh, loaded["model"], again)
    again.load_state_dict(loaded["optimizer"])
    assert torch.equal(model(x), fresh(x)) and torch.equal(model(x), same_injections(x))
    assert [n for n, p in fresh.named_parameters() if p.requires_grad] == [
        n for n, p in model.named_parameters() if p.requires_grad
    ]
    for one, optim in ((model, optimizer), (fresh, again)):
        train(one, optim, x)
    assert torch.equal(model(x), fresh(x))
    rk.restore_(fresh, model.state_dict())  # what is there already is only loaded


def test_copies_and_pickles():
    model, x = net(), batch(16, 4)
    rk.plasticity_injection_(model, example=x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(model(x), other(x)) and not other[4].twin.weight.requires_grad
        other.train()
        assert not other[4].twin.training


def test_a_compiled_model_sees_the_new_head():
    model, x = net(), batch(16, 4)
    compiled = torch.compile(model, backend="eager")
    compiled(x)
    rk.plasticity_injection_(model, example=x)
    with torch.no_grad():
        model[4].new.weight.add_(1)
    assert torch.equal(compiled(x), model(x))


def test_the_injected_model_can_be_traced_and_treated():
    model, x = net(), batch(16, 4)
    rk.plasticity_injection_(model, example=x)
    graph = rk.trace(model, x)
    graph.verify(model, x)
    assert {w.name for w in graph.weights if w.role == "head"} == {"4.frozen.weight", "4.new.weight", "4.twin.weight"}


def test_undo_asks_before_dropping_what_was_learned():
    model, x = net(), batch(16, 4)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    record = rk.plasticity_injection_(model, optimizer, example=x)
    train(model, optimizer, x)
    with pytest.raises(EditError, match="force=True"):
        record.undo()
    assert isinstance(model[4], Injected)
    record.undo(force=True)
    assert isinstance(model[4], nn.Linear) and len(optimizer.state) == 4


def test_undo_goes_last_first():
    model = net()
    first, second = rk.plasticity_injection_(model, head="4"), rk.plasticity_injection_(model, head="4")
    with pytest.raises(EditError, match="later changes first"):
        first.undo()
    second.undo()
    first.undo()
    assert isinstance(model[4], nn.Linear) and model[4].weight.requires_grad


def test_the_new_head_has_the_head_s_own_law_and_reference():
    model = nn.Sequential(nn.Linear(400, 300))
    rk.plasticity_injection_(model, head="0", seed=3)
    assert float(model[0].new.weight.detach().std()) == pytest.approx(400**-0.5 / 3**0.5, rel=0.02)
    assert torch.equal(model[0].new.weight, model[0].twin.weight)
    other, start = net(), net()
    rk.plasticity_injection_(other, head="4", reference=start)
    assert torch.equal(other[4].new.weight, start[4].weight)


def test_weight_norm_in_the_head():
    model, x = (
        nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(6, 2))),
        batch(5, 4),
    )
    before = model(x)
    rk.plasticity_injection_(model, example=x)
    assert torch.equal(before, model(x))
    assert not torch.equal(model[2].new.weight, model[2].frozen.weight)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def test_refusals():
    with pytest.raises(PlanError, match="tied to another use: embed"):
        rk.plasticity_injection_(Tied(), head="head")
    with pytest.warns(rk.NoEffectWarning, match="tied to another part"):
        rk.plasticity_injection_(Tied(), example=torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(PlanError, match='head="fc"'):
        rk.plasticity_injection_(net())
    with pytest.raises(PlanError, match="for example 0, 1, 2"):
        rk.plasticity_injection_(net(), head="fc")
    with pytest.raises(PlanError, match="inside the model"):
        rk.plasticity_injection_(net(), head="")
    with pytest.warns(rk.NoEffectWarning, match="module of its own"):
        rk.plasticity_injection_(nn.Linear(4, 2), example=batch(2, 4))
    model = net()
    with pytest.raises(PlanError, match="a live model"):
        rk.apply_("plasticity_injection:head=4", dict(model.state_dict()), graph=rk.trace(model, batch(2, 4)))
    assert isinstance(model[4], nn.Linear)


def test_a_chain_of_two_is_one_after_the_other():
    chained, by_hand, x = net(), net(), batch(5, 4)
    before = chained(x)
    record = rk.apply_("plasticity_injection:head=4+plasticity_injection:head=4", chained)
    for _ in range(2):
        rk.plasticity_injection_(by_hand, head="4")
    assert isinstance(chained[4].frozen, Injected) and torch.equal(chained(x), before)
    assert all(torch.equal(one, other) for one, other in zip(chained.parameters(), by_hand.parameters(), strict=True))
    assert len(record.surgery) == 2
    record.undo()
    assert isinstance(chained[4], nn.Linear) and chained[4].weight.requires_grad
