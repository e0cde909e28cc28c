"""Runs that are trained as one have the rows that they have alone."""

import pytest

from rekindle.errors import SettingsError
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.stacked import check_stackable, run_stacked
from rekindle.lab.runs.training_run import train_run

ROUNDS = {
    "protocol": "rounds:blocks=2,repeats=2,steps=15",
    "data": "synthetic:signal=2,test=512",
    "model": "mlp_synthetic",
    "optimizer": "sgd:lr=0.02,momentum=0.9,weight_decay=1e-3",
}
DIGITS = {"data": "digits", "model": "mlp:hidden=16", "optimizer": "adam:lr=1e-3", "batch_size": 100}
TIMES = {"seconds", "boundary_seconds"}


def runs_of(count=3, **given):
    return [Run.from_dict({**ROUNDS, **given, "seed": seed}) for seed in range(count)]


def assert_as_alone(runs, examples=0.0, close=1e-4):
    """Accuracies may differ by a fraction of the examples; losses are within 1e-4, what else is measured `close`."""
    together = run_stacked(runs)
    assert list(together) == [run.key for run in runs]
    for run in runs:
        alone = train_run(run, None)
        assert len(alone) == len(together[run.key])
        for one, other in zip(alone, together[run.key], strict=True):
            assert one.keys() == other.keys()
            for name in one.keys() - TIMES:
                assert other[name] == _nearly(name, one[name], examples, close), name
    return together


def _nearly(name, value, examples, close):
    if not isinstance(value, float):
        return value
    if name.startswith("accuracy"):
        return pytest.approx(value, rel=0, abs=examples)
    return pytest.approx(value, abs=1e-4) if "loss" in name else pytest.approx(value, rel=close, abs=1e-4)


@pytest.mark.parametrize(
    "methods",
    [
        "none",
        "fire:solver=exact",
        "welsr",
        "fresh",
        "welsr+head_reset",
    ],
)
def test_rounds(methods):
    rows = assert_as_alone(runs_of(methods=methods))
    last = [own[-1]["loss"] for own in rows.values()]
    assert len(set(last)) == len(last)  # the seeds are not one and the same


@pytest.mark.parametrize("methods", ["l2:strength=0.1", "l2:strength=0.05,which=weights+rescale"])
def test_a_penalty_on_the_size_of_weights(methods):
    assert_as_alone(runs_of(methods=methods), examples=1 / 512)


def test_methods_may_act_at_the_very_beginning():
    protocol = "rounds:blocks=2,repeats=1,steps=15,begin=boundary"
    assert_as_alone(runs_of(protocol=protocol, methods="l2:strength=0.1+rescale:proportional=false"), examples=1 / 512)


def test_a_method_that_ends_within_a_tolerance():
    """How far the default solver of fire goes beyond its tolerance depends on the last bits of the weights."""
    assert_as_alone(runs_of(methods="fire"), examples=2 / 512, close=1e-2)


def test_methods_do_something():
    plain, treated = (run_stacked(runs_of(methods=methods)) for methods in ("none", "fire"))
    for one, other in zip(plain.values(), treated.values(), strict=True):
        assert one[0]["loss"] == other[0]["loss"] and one[-1]["loss"] != other[-1]["loss"]
        assert "sfe" in other[1] and "sfe" not in one[1]


def test_a_penalty_does_something_to_every_seed():
    plain, treated = (run_stacked(runs_of(methods=methods)) for methods in ("none", "l2:strength=0.1"))
    for one, other in zip(plain.values(), treated.values(), strict=True):
        assert abs(one[-1]["loss"] - other[-1]["loss"]) > 1e-3


def test_the_optimizer_goes_on_where_the_protocol_says():
    kept = runs_of(protocol="rounds:blocks=2,repeats=1,steps=15,restart=false")
    cleared = runs_of(protocol="rounds:blocks=2,repeats=1,steps=15")
    ends = [[own[-1]["loss"] for own in assert_as_alone(runs).values()] for runs in (kept, cleared)]
    assert ends[0] != ends[1]


@pytest.mark.parametrize(
    ("protocol", "given"),
    [
        ("warm_start:fraction=0.3,before=2,after=2", {"methods": "shrink_perturb"}),
        ("warm_start:fraction=0.3,before_steps=7,after_steps=5", {"label_noise": 0.2, "evaluate_each": 2}),
        ("generalization:epochs=4,decay=true", {"warmup": 0.3, "sample_fraction": 0.5}),
    ],
)
def test_other_protocols_and_part_batches(protocol, given):
    assert_as_alone(runs_of(count=2, protocol=protocol, **DIGITS, **given))


def test_metrics_see_the_weights_of_their_seed():
    protocol = "rounds:blocks=2,repeats=1,steps=5"
    assert_as_alone(runs_of(count=2, protocol=protocol, metrics=["weight_norm"], metrics_each="epoch", methods="fire"))


def test_progress_tells_each_row():
    told, runs = [], runs_of(count=2)
    rows = run_stacked(runs, progress=told.append)
    assert [[row for row in told if row["key"] == run.key] for run in runs] == list(rows.values())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"protocol": "continual"}, "as protocol"),
        ({"model": "simba"}, "as model"),
        ({"optimizer": "muon:lr=0.02"}, "as optimizer"),
        ({"methods": "soft_rescale"}, "l2, or methods that act between stages"),
        ({"methods": "fire+redo"}, "methods that act between stages"),
        ({"methods": "plasticity_injection"}, "keep the structure"),
        ({"methods": "layerwise"}, "keep the structure"),
        ({"clip": 1.0}, "clip=None"),
        ({"precision": "bfloat16"}, "precision=float32"),
        ({"validation": 0.1}, "validation=0.0"),
        ({"data": "digits", "augment": "flip"}, "augment=none"),
        ({"protocol": "rounds:steps=5,validation=0.1"}, "without validation"),
        ({"protocol": "rounds:steps=5,restart=false", "methods": "fire"}, "begins anew"),
    ],
)
def test_what_cannot_be_stacked_is_refused(given, expected):
    with pytest.raises(SettingsError, match=expected):
        run_stacked(runs_of(count=2, **given))


@pytest.mark.parametrize(
    "runs",
    [[], runs_of(1) + runs_of(1), runs_of(1) + runs_of(2, methods="fire")[1:]],
    ids=["none", "the same seed twice", "other methods"],
)
def test_runs_must_differ_in_their_seed_only(runs):
    with pytest.raises(SettingsError):
        check_stackable(runs)


def test_too_much_data_is_refused(monkeypatch):
    monkeypatch.setattr("rekindle.lab.runs.stacked.LARGEST", 1000)
    with pytest.raises(SettingsError, match="at most 1,000 bytes"):
        run_stacked(runs_of(2))
