import copy
import dataclasses
import random
from collections import UserDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import rekindle as rk
from rekindle.comparison.batches import TrainingBatches, digest
from rekindle.comparison.result import Comparison
from rekindle.comparison.trials import CompareError
from rekindle.edits.edit import Edits
from rekindle.testing.aged import bits, memory, same
from tests.comparison.comparing import SMALL, TEST, TRAIN, dead, net, small


def scores(found, method, event="end"):
    return [row["score"] for row in found.rows if row["methods"] == method and row["event"] == event]


# --- oracles ---


@pytest.fixture(scope="module")
def dead_units():
    methods = ["none", "redo:period=5", "full_reset", "redo:skip=*"]
    return rk.compare(dead(), TRAIN, TEST, methods, budget=40, optimizer="adam:lr=1e-2", batch_size=64)


def test_dead_units_are_better_treated(dead_units):
    by_name = {outcome.method: outcome for outcome in dead_units.outcomes}
    assert list(by_name) == ["none", "redo:period=5", "full_reset", "redo:skip=*", "fresh"]
    assert by_name["none"].score.mean < 0.3
    for name in ("redo:period=5", "full_reset", "fresh"):
        assert by_name[name].to_none.better and by_name[name].to_none.low > 0.3, name
        assert by_name[name].p == 0.5**5
    assert dead_units.verdict.startswith(("treat with redo:period=5: +", "treat with full_reset: +"))
    assert "over going on" in dead_units.verdict


def test_what_changes_nothing_scores_bit_equal(dead_units):
    assert scores(dead_units, "redo:skip=*") == scores(dead_units, "none")
    nothing = next(outcome for outcome in dead_units.outcomes if outcome.method == "redo:skip=*")
    assert (nothing.to_none.mean, nothing.to_none.low, nothing.to_none.high, nothing.p) == (0, 0, 0, 1)


def test_the_table_shows_all_of_it(dead_units):
    text = str(dead_units)
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    mean = 100 * np.mean(scores(dead_units, "full_reset"))
    assert f"{mean:.1f}" in lines["full_reset"] and "0.03125" in lines["full_reset"] and "0.125" in lines["full_reset"]
    after = 100 * np.mean(scores(dead_units, "full_reset", "boundary"))
    assert f"{after:.1f}" in lines["full_reset"]
    assert text.splitlines()[-1] == dead_units.verdict
    assert "1.00x" in lines["none"]


def test_nothing_differs_so_go_on():
    """A constant score: whatever is done makes no difference."""
    found = small(methods=["fire", "shrink_perturb"], metric=lambda model, batches: 0.5, seeds=5)
    assert found.score == "metric"
    assert found.verdict == "no evidence of a difference: go on as you are."


def test_a_network_that_knows_the_data_goes_on():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(TRAIN[0]), TRAIN[1]).backward()
        optimizer.step()
    found = rk.compare(model, TRAIN, TEST, ["head_reset"], budget=2)
    assert found.verdict.startswith("go on as you are: nothing is clearly better, and clearly worse ")
    assert "a fresh start -" in found.verdict


# --- pairing ---


def test_all_ways_see_the_same_batches_in_the_same_order_and_seeds_differ():
    seen: dict[str, list] = {}

    def loss(model, batch):
        if model.training and torch.is_grad_enabled():
            seen.setdefault("order", []).append(batch[1].tolist())
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    found = small(methods=["shrink_perturb"], loss=loss, budget=5)
    orders = [tuple(map(tuple, seen["order"][start : start + 5])) for start in range(0, len(seen["order"]), 5)]
    assert len(found.trials) == len(orders) == 6  # none, shrink_perturb, fresh; twice
    assert orders[0] == orders[1] == orders[2] != orders[3] == orders[4] == orders[5]
    assert sorted(sum(orders[0][:4], ())) == sorted(SMALL[1].tolist())  # an epoch is every example once
    assert orders[0][0] != orders[0][4]  # and the next one is in another order


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A method that changes nothing, but draws from the global generator."""

    key, kind = "drawing", "one-shot"
    card = rk.FullReset.card

    def plan(self, graph, evidence, seed):
        torch.rand(3)
        return Edits()


@pytest.mark.filterwarnings("ignore::rekindle.NoEffectWarning")
def test_dropout_is_the_same_whatever_a_treatment_drew():
    found = small(net(extra=[nn.Dropout(0.5)]), [Drawing()], metric=minus_loss)
    assert scores(found, "drawing") == scores(found, "none")
    assert len(set(scores(found, "none"))) == 2


@torch.no_grad()
def minus_loss(model, batches):
    return -sum(float(nn.functional.cross_entropy(model(x), y)) for x, y in batches)


def test_the_same_call_gives_the_same_scores_whatever_was_drawn_before():
    torch.manual_seed(1)
    first = small(metric=minus_loss)
    torch.rand(3)
    second = small(metric=minus_loss)
    assert [row["score"] for row in first.rows] == [row["score"] for row in second.rows]
    assert [row["key"] for row in first.rows] == [row["key"] for row in second.rows]


def test_a_fork_trains_as_a_plain_loop_does():
    model = net()
    found = small(model, budget=7, metric=minus_loss, optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.1))
    by_hand = copy.deepcopy(model)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for inputs, labels in TrainingBatches(SMALL, batch_size=16).batches(1, 7):
        optimizer.zero_grad()
        nn.functional.cross_entropy(by_hand(inputs), labels).backward()
        optimizer.step()
    assert scores(found, "none")[1] == minus_loss(by_hand, [SMALL])


# --- a guest ---


def test_model_optimizer_and_generators_are_untouched():
    model = net(extra=[nn.BatchNorm1d(16), nn.Dropout(0.5)])
    optimizer = torch.optim.Adam(model.parameters())
    nn.functional.cross_entropy(model(SMALL[0]), SMALL[1]).backward()
    optimizer.step()
    model.eval()
    model[2].train()
    source = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(*SMALL), batch_size=16, shuffle=True, generator=source)
    before = bits(model), memory(model, optimizer), [p.grad.clone() for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    states = torch.get_rng_state(), source.get_state(), random.getstate(), np.random.get_state()[1].tolist()
    groups = copy.deepcopy(optimizer.state_dict()["param_groups"])
    small(model, ["fire", "redo:period=1", "plasticity_injection"], loader, loader, optimizer=optimizer)
    same(before[0], bits(model), "changed")
    same(before[1], memory(model, optimizer), "changed")
    assert all(torch.equal(g, p.grad) for g, p in zip(before[2], model.parameters(), strict=True))
    assert modes == [module.training for module in model.modules()]
    assert torch.equal(states[0], torch.get_rng_state()) and torch.equal(states[1], source.get_state())
    assert states[2] == random.getstate() and states[3] == np.random.get_state()[1].tolist()
    assert groups == optimizer.state_dict()["param_groups"]
    assert not any(module._forward_hooks for module in model.modules())


def test_the_users_optimizer_goes_on_with_its_moments_and_a_fresh_start_without():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    nn.functional.cross_entropy(model(SMALL[0]), SMALL[1]).backward()
    optimizer.step()
    seen = []

    def loss(forked, batch):
        if torch.is_grad_enabled():
            seen.append(copy.deepcopy(forked))
        return nn.functional.cross_entropy(forked(batch[0]), batch[1])

    small(model, ["none"], loss=loss, optimizer=optimizer, budget=2)
    momentum = optimizer.state[model[0].weight]["momentum_buffer"]
    inputs, labels = next(TrainingBatches(SMALL, batch_size=16).batches(0, 1))
    for start, carried in ((0, 0.9 * momentum), (2, 0.0)):  # going on, then the fresh start
        weight, after = seen[start][0].weight, seen[start + 1][0].weight
        gradient = torch.autograd.grad(nn.functional.cross_entropy(seen[start](inputs), labels), weight)[0]
        assert torch.allclose(after, weight - 0.1 * (carried + gradient), atol=1e-6)
    assert torch.equal(seen[0][0].weight, model[0].weight) and not torch.equal(seen[2][0].weight, model[0].weight)


def test_a_fresh_start_has_an_optimizer_without_a_past():
    model, seen = net(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        nn.functional.cross_entropy(model(SMALL[0]), SMALL[1]).backward()
        optimizer.step()

    def loss(forked, batch):
        if torch.is_grad_enabled():
            seen.append(forked[2].bias.detach().clone())
        return nn.functional.cross_entropy(forked(batch[0]), batch[1])

    small(model, ["none"], loss=loss, optimizer=optimizer, budget=2)
    size = (seen[3] - seen[2]).abs()  # the first step of Adam is as long as its rate, whatever the gradient
    assert torch.allclose(size, torch.full_like(size, 0.01), rtol=1e-3)
    assert not torch.allclose((seen[1] - seen[0]).abs(), size, rtol=1e-3)  # going on is not a first step


def test_parts_that_were_frozen_stay_frozen_in_training():
    model = net(extra=[nn.BatchNorm1d(16)])
    model.train()
    model[2].eval()
    modes = set()

    def loss(forked, batch):
        modes.add((forked.training, forked[2].training, torch.is_grad_enabled()))
        return nn.functional.cross_entropy(forked(batch[0]), batch[1])

    small(model, ["shrink_perturb"], loss=loss)
    assert modes == {(True, False, True), (False, False, False)}


# --- data, scores, starts ---


def test_targets_that_are_no_classes_score_minus_the_loss():
    data = [(torch.randn(8, 3), torch.randn(8, 2)) for _ in range(3)]
    model = nn.Linear(3, 2)
    found = small(model, ["shrink_perturb"], data, data, loss=lambda m, b: mse_loss(m(b[0]), b[1]), budget="2 epochs")
    assert found.score == "minus loss"
    assert found.trials[0].protocol == "compare:steps=6" and found.trials[0].steps == 6
    assert all(row["score"] == -row["loss"] and "accuracy" not in row for row in found.rows)
    before = sum(mse_loss(model(x), y).item() for x, y in data) / 3
    assert found.rows[0]["loss_before"] == pytest.approx(before, rel=1e-6)


def test_accuracy_counts_all_examples_of_unequal_batches():
    batches = [(SMALL[0][:50], SMALL[1][:50]), (SMALL[0][50:], SMALL[1][50:])]
    model = net()
    found = small(model, test=batches)
    right = (model(SMALL[0]).argmax(1) == SMALL[1]).float().mean()
    assert found.rows[0]["accuracy_before"] == pytest.approx(float(right))
    assert found.rows[0]["score"] == found.rows[0]["accuracy"] == found.rows[0]["accuracy_before"]  # none: untreated


def test_only_as_many_batches_are_taken_as_there_are_steps():
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield SMALL

    small(data=endless(), budget=4)
    assert len(taken) <= 5


def test_a_fresh_start_is_drawn_anew_for_each_seed_by_the_factory():
    made = []

    def factory():
        made.append(net(seed=int(torch.randint(1000, ()))))
        return made[-1]

    def first_weight(model, batches):
        return float(model[0].weight[0, 0])

    found = small(fresh=factory, metric=first_weight)
    assert len(made) == 2
    assert scores(found, "fresh", "boundary") == [each[0].weight[0, 0].item() for each in made]
    assert len(set(scores(found, "fresh", "boundary"))) == 2


def test_per_step_methods_work_all_through_the_training():
    found = small(methods=["weight_clip:kappa=1e-6"], metric=lambda m, b: -float(m[0].weight.abs().max()), budget=4)
    assert max(map(abs, scores(found, "weight_clip:kappa=1e-6"))) < 1e-3 < min(map(abs, scores(found, "none")))


def test_several_in_one_and_settings():
    settings = rk.method("fire:solver=newton_schulz,iterations=3,skip=a.*|b.*")
    found = small(methods=["fire+soft_rescale", rk.method("head_reset"), ["fire", "l2"], settings])
    names = ["fire+soft_rescale", "head_reset", "fire+l2", "fire:solver=newton_schulz,iterations=3,skip=a.*|b.*"]
    assert [outcome.method for outcome in found.outcomes][1:-1] == names


def test_keys_tell_weights_and_data_apart():
    keys = [small(model, data=data).trials[0].key for model in (net(0), net(1)) for data in (SMALL, TRAIN)]
    assert len(set(keys)) == 4
    assert digest([torch.ones(2)]) != digest([torch.ones(2, 1)])


def test_the_lazy_names():
    assert rk.Comparison is Comparison
    assert issubclass(CompareError, rk.RekindleError)


# --- batches as models of transformers take them ---


class Holding(nn.Module):
    """A network that takes `labels` and gives logits and its own loss in a dict, or only a tensor."""

    def __init__(self, own=True):
        super().__init__()
        self.net, self.own = net(), own

    def forward(self, pixels, labels=None):
        logits = self.net(pixels)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"logits": logits, "loss": loss} if self.own else logits


def test_dicts_with_labels_need_no_loss_and_give_the_same():
    pairs = [(TRAIN[0][n : n + 16], TRAIN[1][n : n + 16]) for n in range(0, 64, 16)]
    methods = ["dash", "redo:period=1"]
    plain = small(Holding(own=False), methods, pairs, pairs)
    forms = (
        [{"pixels": x, "labels": y} for x, y in pairs],
        [UserDict(pixels=x, labels=y) for x, y in pairs],
        [(UserDict(pixels=x), y) for x, y in pairs],
    )
    for data in forms:
        found = small(Holding(), methods, data, data)
        assert not found.failed and found.score == "accuracy" == plain.score
        for method in ("none", *methods, "fresh"):
            assert scores(found, method) == scores(plain, method), method
