import pytest

from rekindle.errors import SettingsError
from rekindle.lab.protocols.catalog import protocol
from rekindle.lab.runs.presets import BEST, RUNS, SEARCHED, preset
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.training_run import train_config_of
from rekindle.methods.registry import methods


@pytest.mark.parametrize("name", RUNS)
def test_every_preset_is_a_run(name):
    run = Run.from_dict(preset(name))
    assert run.methods == "none"
    size = 480 if name.startswith("fire.language.") else 256
    assert protocol(run.protocol).key in run.protocol and train_config_of(run).batch_size == size


@pytest.mark.parametrize("name", BEST)
def test_every_best_value_is_a_method(name):
    assert name in RUNS
    for key, spec in BEST[name].items():
        assert methods(spec)[0].key == key


def test_searched_values_hold_the_best_ones():
    for name, best in BEST.items():
        if name.startswith("fire.") and not name.startswith("fire.language."):
            assert all(best[key] in values for key, values in SEARCHED.items())
    assert {key: len(values) for key, values in SEARCHED.items()} == {
        "shrink_perturb": 4,
        "dash": 6,
        "parseval": 3,
        "cbp": 4,
        "redo": 4,
        "l2_init": 3,
        "snr": 4,
    }


def test_numbers_of_the_papers():
    fire = Run.from_dict(preset("fire.warm_start.cifar10", "snr"))
    assert (fire.clip, fire.warmup, fire.methods) == (0.5, 0.1, "snr:threshold=0.01")
    path = protocol(fire.protocol)
    assert (path.fraction, path.before, path.after) == (0.1, 1000, 100)
    swr = protocol(preset("rescaling.warm_start.mnist")["protocol"])
    assert (swr.fraction, swr.before, swr.after) == (0.5, 100, 100)
    shift = protocol(preset("frozen.cifar10_to_random_shift")["protocol"])
    assert (shift.learning_rate, shift.decay, shift.weight_decay, shift.patience) == (0.05, 0.95, 0.001, 60)
    house = protocol(preset("frozen.svhn_to_cifar10")["protocol"])
    assert (house.patience, house.second_patience, house.epochs, house.second_epochs) == (20, 40, 100, 200)
    treated = protocol(preset("frozen.imagenet_to_cifar100.treated")["protocol"])
    assert (treated.learning_rate, treated.second_learning_rate, treated.second_decay) == (0.003, 0.01, 0.95)
    assert len({name.split(".")[1] for name in RUNS if name.startswith("frozen.")}) == 13  # rows of Tables 6 to 8


def test_a_method_without_a_best_value_has_its_defaults():
    assert preset("layerwise.synthetic.1", "welsr")["methods"] == "welsr"


def test_mistakes():
    with pytest.raises(SettingsError, match="fire.warm_start.cifar10"):
        preset("fire.warm")
