"""From the Hugging Face hub into the cache of `store`: fetched once, read from the npz files ever after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rekindle.errors import RekindleError
from rekindle.lab.data.store import cache, write_stored


@dataclass(frozen=True)
class Source:
    """Where a data set is on the hub.

    Args:
        path: Its repository, or a local folder in the same format.
        config: Its configuration, if it has several.
        label: Column of the labels; that of the images is found by its type.
        train: Split to learn from.
        test: Split to be tested on.
        size: Height and width to which images of several sizes are brought, or None if all are of one size.
        gray: Whether images have one channel.
    """

    path: str
    config: str | None = None
    label: str = "label"
    train: str = "train"
    test: str = "test"
    size: int | None = None
    gray: bool = False


SOURCES = {
    "mnist": Source("ylecun/mnist", gray=True),
    "fashion_mnist": Source("zalando-datasets/fashion_mnist", gray=True),
    "kmnist": Source("tanganke/kmnist", gray=True),
    "emnist_letters": Source("tanganke/emnist_letters", gray=True),
    "cifar10": Source("uoft-cs/cifar10"),
    "cifar100": Source("uoft-cs/cifar100", label="fine_label"),
    "svhn": Source("ufldl-stanford/svhn", config="cropped_digits"),
    "tiny_imagenet": Source("zh-plus/tiny-imagenet", test="valid", size=64),
    "oxford_pets": Source("timm/oxford-iiit-pet", size=224),
    "stanford_dogs": Source("maurice-fp/stanford-dogs", size=224),
    "stanford_cars": Source("tanganke/stanford_cars", size=224),
    "cub200": Source("bentrevett/caltech-ucsd-birds-200-2011", size=224),
    "resisc45": Source("tanganke/resisc45", size=224),
    "patch_camelyon": Source("1aurent/PatchCamelyon", size=96),
}


def download(name: str, *, source: Source | None = None, folder: Path | None = None) -> Path:
    """Fetch a data set into the cache and return its folder; files that are there already are kept.

    Args:
        name: Its name in the cache; one of `SOURCES` if `source` is left out.
        source: Where it is, for sets that are not in the list.
        folder: The cache; `$REKINDLE_DATA` if left out.

    Raises:
        RekindleError: The name is not known, the package `datasets` is missing, or the set is not as expected.
    """
    source = source or _known(name)
    target = (folder or cache()) / name
    for part, split in (("train", source.train), ("test", source.test)):
        if not (target / f"{part}.npz").is_file():
            images, labels = _fetch(source, split)
            write_stored(target, part, images, labels)
    return target


def _known(name: str) -> Source:
    if name not in SOURCES:
        raise RekindleError(
            expected=f"a data set whose place is known: {', '.join(SOURCES)}",
            got=repr(name),
            fix="pass source=rekindle.lab.data.hub.Source('owner/name', ...) for another one",
        )
    return SOURCES[name]


def _fetch(source: Source, split: str) -> tuple[np.ndarray, np.ndarray]:
    rows = open_split(source.path, source.config, split)
    column = next((name for name, kind in rows.features.items() if type(kind).__name__ == "Image"), None)
    if column is None or source.label not in rows.features:
        raise RekindleError(
            expected=f"a column of images and a column {source.label!r} in {source.path}",
            got=f"columns {', '.join(rows.features)}",
            fix="name the column of the labels: Source(..., label=...)",
        )
    images = np.empty(0, np.uint8)
    for place, row in enumerate(rows):  # one at a time: decoded images of all sizes would not fit into memory
        image = _pixels(row[column], source)
        if place == 0:
            images = np.empty((len(rows), *image.shape), np.uint8)
        images[place] = _same_shape(image, images.shape[1:], source)
    return images, np.asarray(rows[source.label], dtype=np.int64)


def open_split(path: str, config: str | None, split: str) -> Any:
    """Return the rows of a split, from the hub or a local folder in the same format; memory-mapped by `datasets`.

    Raises:
        RekindleError: The package is missing, or there is no such split.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise RekindleError(
            expected="the package `datasets`, to fetch from the Hugging Face hub",
            got="it is not installed",
            fix="pip install 'rekindle[hub]', or put the files into the cache yourself",
        ) from error
    try:
        return load_dataset(path, config, split=split)
    except Exception as error:
        raise RekindleError(
            expected=f"split {split!r} of {path} from the Hugging Face hub",
            got=f"{type(error).__name__}: {error}",
            fix="check the network and the name; another repository or a local folder in the same format works as "
            "well: Source(path) for images, --path for text",
        ) from error


def _pixels(image: Any, source: Source) -> np.ndarray:
    image = image.convert("L" if source.gray else "RGB")
    if source.size is not None and image.size != (source.size, source.size):
        image = image.resize((source.size, source.size), resample=2)  # bilinear
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels  # [H, W, C]


def _same_shape(image: np.ndarray, shape: tuple[int, ...], source: Source) -> np.ndarray:
    if image.shape != shape:
        raise RekindleError(
            expected=f"images of one shape, {shape} as the first",
            got=f"one of {image.shape} in {source.path}",
            fix="bring all to one size: Source(..., size=64)",
        )
    return image
