"""The trainability probe: the comparison by hand, curves against a plain loop, healthy and sick networks."""

import copy
import math

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.metrics import trainability
from rekindle.metrics.trainability import STUDENT, probe, with_random_labels
from rekindle.observe.batches import labels_of
from rekindle.testing import ZOO
from rekindle.testing.aged import bits, same
from tests.metrics.live import classification, live, tiny, vectors

# --- the comparison ---


def test_by_hand():
    aged, fresh = [[3.0, 3.0], [4.0, 0.0], [1.0, 1.5]], [[2.0, 2.0], [3.0, 1.0], [1.0, 1.0]]
    found = trainability.trainability(aged, fresh)
    assert found.repeats == pytest.approx((0.5, 0.0, 0.25)) and found.mean == pytest.approx(0.25)
    half = 4.303 * 0.25 / 3**0.5
    assert (found.low, found.high) == pytest.approx((0.25 - half, 0.25 + half))
    assert found.final == pytest.approx((1 - 1 + 0.5) / 3)


def test_student_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    assert pytest.approx([stats.t.ppf(0.975, df) for df in range(1, len(STUDENT) + 1)], abs=6e-4) == STUDENT


def test_one_repeat_has_no_interval_and_divergence_is_infinitely_bad():
    assert trainability.trainability([[1.0]], [[1.0]]).low == -math.inf
    found = trainability.trainability([[math.nan, 1.0], [1.0, 1.0]], [[1.0, 1.0]] * 2)
    assert found.mean == math.inf and found.repeats == (math.inf, 0.0)


@pytest.mark.parametrize("curve", [[math.nan], [0.0], [-1.0]])
def test_a_fresh_network_that_does_not_train_is_no_yardstick(curve):
    with pytest.raises(PlanError, match="fresh network"):
        trainability.trainability([[1.0]], [curve])


# --- training ---


def test_curves_are_those_of_a_plain_loop():
    model, batches = tiny(), vectors(1)
    subject = live(model, batches)
    reading = probe(subject, steps=6, repeats=2, labels="given", factory=lambda: tiny(7))
    for name, start in (("aged", model), ("fresh", tiny(7))):
        twin, curve = copy.deepcopy(start), []
        optimizer = torch.optim.Adam(twin.parameters(), lr=1e-3)
        for _ in range(6):
            loss = classification(twin, batches[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        assert reading.details["curves"][name] == pytest.approx(curve, rel=1e-5)
    assert reading.details["labels"] == "given"


def test_both_networks_get_the_same_batches_with_the_same_labels():
    seen = []

    def spying(model, batch):
        seen.append(batch[1].tolist())
        return classification(model, batch)

    batches = vectors(3, 16)
    probe(live(tiny(), batches, loss=spying), steps=4, repeats=2, labels="random")
    assert seen[0:4] == seen[4:8] and seen[8:12] == seen[12:16]
    assert sorted(map(tuple, seen[0:3])) != sorted(map(tuple, seen[8:11]))
    assert len(set(map(tuple, seen[0:3]))) == 3  # every batch before any comes again


def test_random_labels_come_from_those_that_occur():
    labels = torch.tensor([2, 5, -100, 5] * 50)
    batches = [(torch.zeros(200, 1), labels), {"x": torch.zeros(200, 1), "labels": labels.clone()}]
    first, second = (with_random_labels(batches, seed) for seed in (0, 1))
    for old, new in zip(batches, first, strict=True):
        new = labels_of(new)
        assert set(new.tolist()) == {2, 5, -100} and torch.equal(new == -100, labels_of(old) == -100)
        assert not torch.equal(new, labels)
    assert not torch.equal(first[0][1], second[0][1]) and not torch.equal(first[0][1], first[1]["labels"])
    assert labels.tolist() == [2, 5, -100, 5] * 50


def test_an_untrained_network_is_as_good_as_a_fresh_one():
    reading = probe(live(wide(0), vectors(4, 32)), steps=20, repeats=4, labels="random")
    assert reading.details["low"] < 0 < reading.details["high"] and abs(reading.summary) < 0.05
    assert reading.details["not_fresh"] == [] and reading.details["labels"] == "random"


def test_data_that_the_network_knows_puts_it_ahead():
    model = wide(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for batch in easy() * 20:
        optimizer.zero_grad()
        classification(model, batch).backward()
        optimizer.step()
    reading = probe(live(model, easy()), steps=20, repeats=2)
    assert reading.summary < -0.5 and reading.details["labels"] == "given"


def test_a_network_with_dead_units_is_slower():
    model = wide(0)
    with torch.no_grad():
        model[0].bias.fill_(-50)
    healthy, sick = (trainability.measure(live(m, easy())) for m in (wide(1), model))
    assert sick.details["low"] > 0.5 and healthy.details["low"] < 0.1 and abs(healthy.summary) < 0.1
    assert sick.details["final"]["aged"] > sick.details["final"]["fresh"]


def test_the_same_seed_gives_the_same_reading():
    first, second, other = (probe(live(tiny(), vectors(), seed=s), steps=3, repeats=2) for s in (0, 0, 1))
    assert first.details == second.details and first.details != other.details


def test_dropout_is_the_same_for_both():
    def build():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))

    assert probe(live(build(), vectors()), steps=5, repeats=2, factory=build).summary == 0


def wide(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


def easy():
    return [(x, x[:, :3].argmax(1)) for x, _ in vectors(4, 32)]


# --- fresh networks ---


def test_what_cannot_be_drawn_is_listed_or_refused():
    vit, functional = ZOO["vit_fused"], ZOO["mlp_functional"]
    batches = [(vit.example(), torch.arange(16) % 7)]
    assert probe(live(vit.build(), batches), steps=1, repeats=1).details["not_fresh"] == ["cls_token", "positions"]
    model = functional.build()
    batches = [(functional.example(), torch.arange(16) % 3)]
    with pytest.raises(PlanError, match="initializers"):
        probe(live(model, batches), steps=1, repeats=1)
    reading = probe(live(model, batches, reference=bits(model)), steps=3, repeats=2)
    assert reading.summary == 0


def test_norms_and_statistics_are_fresh_too():
    member = ZOO["cnn_bn"]
    model = member.build()
    subject = live(model, [(member.example(), torch.arange(16) % 5)])
    before = bits(model)
    fresh, unknown = trainability._fresh(subject, None, 0)
    assert unknown == [] and not fresh.state_dict()["bn1.running_mean"].any()
    assert all(not torch.equal(p, before[name]) for name, p in fresh.named_parameters())
    same(before, bits(model), "the probe wrote")


# --- errors ---


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"repeats": 0}, {"learning_rate": 0}, {"labels": "shuffled"}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(PlanError, match="at least 1"):
        probe(live(tiny(), vectors()), **wrong)


def test_a_model_that_cannot_be_copied_or_trained_is_refused():
    model = tiny()
    subject = live(model, vectors())
    model.requires_grad_(False)
    with pytest.raises(PlanError, match="frozen"):
        probe(subject)
    model.lock = (x for x in ())
    with pytest.raises(PlanError, match="deepcopy"):
        probe(subject)
