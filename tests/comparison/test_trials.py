import dataclasses
import threading

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.lab.runs.saved_comparison import save_comparison
from rekindle.lab.runs.store import Store
from tests.comparison.comparing import SMALL, net, small


@dataclasses.dataclass(frozen=True)
class Broken:
    """A method with a mistake in it, from its second seed on."""

    key, kind = "broken", "one-shot"
    card = rk.FullReset.card
    calls: list = dataclasses.field(default_factory=list, compare=False)

    def plan(self, graph, evidence, seed):
        self.calls.append(seed)
        if len(self.calls) > 1:
            raise ZeroDivisionError("on purpose")
        return rk.method("fire:skip=*").plan(graph, evidence, seed)


@pytest.mark.filterwarnings("ignore::rekindle.NoEffectWarning")
def test_a_method_that_fails_is_reported_and_stops_no_other(tmp_path):
    broken = Broken()
    found = small(methods=[broken, "fire"], seeds=3)
    assert list(found.failed) == ["broken"] and "seed 1: ZeroDivisionError: on purpose" in found.failed["broken"]
    assert len(broken.calls) == 2  # no third try
    assert [outcome.method for outcome in found.outcomes] == ["none", "fire", "fresh"]
    assert all(outcome.score.n == 3 for outcome in found.outcomes)
    assert "failed: broken: seed 1: ZeroDivisionError: on purpose" in str(found)
    store = Store(save_comparison(found, tmp_path))
    broken = {run["seed"]: key for key in store.keys() if (run := store.read_run(key)["run"])["methods"] == "broken"}
    assert [store.state(broken[seed]) for seed in sorted(broken)] == ["finished", "failed"]


def test_a_method_that_diverges_is_reported():
    found = small(methods=["l2:strength=1e30"], budget=6, optimizer="sgd:lr=1")
    assert "l2:strength=1e30" in found.failed
    assert [outcome.method for outcome in found.outcomes] == ["none", "fresh"]


@pytest.mark.filterwarnings("ignore::rekindle.NoEffectWarning")
def test_a_fresh_start_that_cannot_be_drawn_is_reported():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(64, 10))

        def forward(self, x):
            return x @ self.matrix

    found = small(Odd(), ["shrink_perturb"])
    assert "pass fresh=" in found.failed["fresh"]
    assert all(outcome.to_fresh is None for outcome in found.outcomes)
    assert "fresh" not in small(Odd(), ["shrink_perturb"], fresh=Odd).failed


def test_what_going_on_raises_is_raised():
    with pytest.raises(KeyError, match="mine"):
        small(metric=lambda model, batches: {}["mine"])


class Locked(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
        self.lock = threading.Lock()


def not_finite():
    model = net()
    with torch.no_grad():
        model[2].weight[3, 3] = float("nan")
    return model


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"methods": []}, "at least one method"),
        ({"methods": ["no_such_method"]}, "a method: "),
        ({"methods": ["muon"]}, "beside an optimizer"),
        ({"seeds": 1}, "at least 2 different seeds"),
        ({"seeds": [3, 3]}, "at least 2 different seeds"),
        ({"budget": 0}, "a number of steps"),
        ({"budget": "3 weeks"}, "a number of steps"),
        ({"optimizer": 0.1}, "optimizer: a spec"),
        ({"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters())}, "optimizers that train parameters"),
        ({"model": Locked()}, "a model that copy.deepcopy can copy"),
        ({"model": not_finite()}, "finite values in every tensor"),
        ({"model": {"weight": torch.ones(1)}}, "a live model"),
        ({"data": SMALL[0]}, "an iterable of batches"),
        ({"data": (SMALL[0], SMALL[1][:3])}, "of the same length"),
        ({"test": []}, "at least one batch"),
        ({"data": [SMALL[0]]}, "loss=, or batches"),
    ],
)
def test_errors_at_the_door_have_three_parts(given, told):
    with pytest.raises(rk.RekindleError) as caught:
        small(**given)
    assert told in caught.value.expected
    assert caught.value.got and caught.value.fix
