"""Data by spec string: embedded and synthetic sets by their name, all others from the files of the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rekindle.errors import SettingsError
from rekindle.lab.data.bins import load_tokens
from rekindle.lab.data.dataset import Dataset
from rekindle.lab.data.digits import load_digits
from rekindle.lab.data.mnist1d import load_mnist1d
from rekindle.lab.data.store import cache, load_stored
from rekindle.lab.data.synthetic import load_synthetic
from rekindle.methods.spec import fill, split
from rekindle.training.examples import Examples


def digits(test_fraction: float = 1 / 3, division: int = 0) -> Dataset:
    """Return the embedded digits; `division` decides which of them are for testing."""
    found = load_digits(test_fraction, division)
    train = Examples(found.train_images, found.train_labels)
    test = Examples(found.test_images, found.test_labels)
    return Dataset("digits", train, test, 10)


IMAGE_SETTINGS = {"size"}
TOKEN_SETTINGS = {"context", "tokens", "windows", "vocabulary"}
EMBEDDED: dict[str, Callable[..., Dataset]] = {"digits": digits, "synthetic": load_synthetic, "mnist1d": load_mnist1d}


def load(spec: str, seed: int = 0) -> Dataset:
    """Load a data set.

    Args:
        spec: "digits", "synthetic:signal=0.5", "mnist1d", or the name of a folder in `$REKINDLE_DATA`: of images, which
            `cifar10:size=16` brings to another size, or of tokens, as `rekindle data prepare` and nanoGPT write them:
            `wikitext:context=64,tokens=60000`.
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
    made: Dataset = fill(EMBEDDED.get(name) or _loader(spec), spec, fixed)
    return made


def _loader(spec: str) -> Callable[..., Dataset]:
    """Return what reads a folder: by its files; by the settings, where there are none yet, to say how to get them."""
    name, given = split(spec)
    tokens, images = ((cache() / name / file).is_file() for file in ("train.bin", "train.npz"))
    if tokens and images:
        raise SettingsError(
            expected=f"either tokens or images in {cache() / name}",
            got="both train.bin and train.npz",
            fix="keep them in two folders",
        )
    return load_tokens if tokens or (not images and set(given) & TOKEN_SETTINGS) else load_stored


def check(spec: str) -> str:
    """Return the name in the spec of a data set; whether its files are there is seen when it is loaded."""
    name, given = split(spec)
    plain = name and name.replace("_", "").replace("-", "").isalnum()
    known = name in EMBEDDED or set(given) <= IMAGE_SETTINGS or set(given) <= TOKEN_SETTINGS
    if not plain or not known:
        raise SettingsError(
            expected=f"{', '.join(EMBEDDED)} with settings, or the plain name of a folder in $REKINDLE_DATA with size "
            f"for images, or with {', '.join(sorted(TOKEN_SETTINGS))} for tokens",
            got=repr(spec),
            fix="write it as in synthetic:signal=0.5, cifar10, cifar10:size=16, or wikitext:context=256",
        )
    return name
