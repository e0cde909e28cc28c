"""Small comparisons that several test files make."""

import torch
from torch import nn

import rekindle as rk
from rekindle.comparison.result import Comparison
from rekindle.comparison.trial import Trial
from rekindle.lab.data.digits import load_digits

DIGITS = load_digits()
TRAIN = (DIGITS.train_images.flatten(1), DIGITS.train_labels)
TEST = (DIGITS.test_images.flatten(1)[:200], DIGITS.test_labels[:200])
SMALL = (TRAIN[0][:64], TRAIN[1][:64])


def net(seed=0, extra=()):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), *extra, nn.Linear(16, 10))


def dead():
    """A network whose hidden units are all silent, for good: only its last bias learns."""
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    return model


def small(model=None, methods=("shrink_perturb",), data=SMALL, test=SMALL, **given):
    return rk.compare(model or net(), data, test, methods, **{"budget": 3, "seeds": 2, "batch_size": 16, **given})


def told(**by_method):
    """A comparison with given scores, one for each seed."""
    trials, rows = [], []
    for method, values in by_method.items():
        for seed, value in enumerate(values):
            trials.append(Trial(method, seed, steps=1, data="own", model="net", optimizer="adam", batch_size=8))
            row = {"key": trials[-1].key, "methods": method, "seed": seed, "score": value, "seconds": 1.0, "stage": 0}
            rows += [{**row, "event": "boundary", "epoch": 0}, {**row, "event": "end", "epoch": 1}]
    return Comparison(tuple(rows), tuple(trials), "accuracy")
