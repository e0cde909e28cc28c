"""Data by spec string: embedded and synthetic sets by their name, all others from the files of the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rekindle.errors import SettingsError
from rekindle.lab.data.dataset import Dataset
from rekindle.lab.data.digits import load_digits
from rekindle.lab.data.mnist1d import load_mnist1d
from rekindle.lab.data.store import load_stored
from rekindle.lab.data.synthetic import load_synthetic
from rekindle.methods.spec import fill, split
from rekindle.training.examples import Examples


def digits(test_fraction: float = 1 / 3, division: int = 0) -> Dataset:
    """Return the embedded digits; `division` decides which of them are for testing."""
    found = load_digits(test_fraction, division)
    train = Examples(found.train_images, found.train_labels)
    test = Examples(found.test_images, found.test_labels)
    return Dataset("digits", train, test, 10)


EMBEDDED: dict[str, Callable[..., Dataset]] = {"digits": digits, "synthetic": load_synthetic, "mnist1d": load_mnist1d}


def load(spec: str, seed: int = 0) -> Dataset:
    """Load a data set.

    Args:
        spec: "digits", "synthetic:signal=0.5", "mnist1d", or the name of a folder in `$REKINDLE_DATA`, whose images
            `cifar10:size=16` brings to another size.
        seed: Draws the synthetic set; the others are the same for every seed.

    Raises:
        RekindleError: There is no such set, or a setting of it makes no sense.

    Example:
        >>> load("digits").shape, load("synthetic:signal=2,train=64").shape
        ((1, 8, 8), (128,))
    """
    name = check(spec)
    fixed: dict[str, Any] = {"seed": seed} if name == "synthetic" else {}
    fixed |= {} if name in EMBEDDED else {"name": name, "folder": None}
    made: Dataset = fill(EMBEDDED.get(name, load_stored), spec, fixed)
    return made


def check(spec: str) -> str:
    """Return the name in the spec of a data set; whether its files are there is seen when it is loaded."""
    name, given = split(spec)
    plain = name and name.replace("_", "").replace("-", "").isalnum()
    if not plain or (name not in EMBEDDED and not set(given) <= {"size"}):
        raise SettingsError(
            expected=f"{', '.join(EMBEDDED)} with settings, or the plain name of a folder in $REKINDLE_DATA with size",
            got=repr(spec),
            fix="write it as in synthetic:signal=0.5, cifar10, or cifar10:size=16",
        )
    return name
