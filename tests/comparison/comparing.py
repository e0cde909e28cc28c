"""Small comparisons that several test files make."""

import torch
from torch import nn

import rekindle as rk
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
