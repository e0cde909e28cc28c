"""Data sets on disk: `$REKINDLE_DATA/<name>/{train,test}.npz` with `images` uint8 [N,H,W,C] and `labels`."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from rekindle.errors import RekindleError
from rekindle.lab.data.dataset import Dataset, measure_normalize
from rekindle.lab.data.fit import Fit
from rekindle.training.examples import Examples, as_float

VARIABLE = "REKINDLE_DATA"
Side = Annotated[int, Field(ge=1)]
AT_ONCE = 4096  # images that are resized together


def cache() -> Path:
    """Return the folder of all data sets: `$REKINDLE_DATA`, or `~/.cache/rekindle` if that is not set."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "rekindle")


def load_stored(name: str, folder: Path | None = None, size: Side | None = None) -> Dataset:
    """Load a data set from its two files; normalized by the training images' mean and deviation.

    The last two sets stay in memory as they were read, so that run after run on one of them reads it once.

    Args:
        name: Of its folder.
        folder: Of all data sets, if not the cache.
        size: Height and width to which images are brought; as they are stored if left out.

    Raises:
        RekindleError: A file is missing or is not of the format.
    """
    folder = (folder or cache()) / name
    return _loaded(name, folder, size, tuple(_stamp(folder / f"{part}.npz") for part in ("train", "test")))


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat() if file.is_file() else None
    return (found.st_mtime_ns, found.st_size) if found else (0, 0)


@lru_cache(maxsize=2)
def _loaded(name: str, folder: Path, size: int | None, stamps: tuple[tuple[int, int], ...]) -> Dataset:
    """Read what has these times and lengths on disk: what was written since is read again."""
    train, test = (_read(folder / f"{part}.npz", name) for part in ("train", "test"))
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise RekindleError(
            expected="training and test images of one shape",
            got=f"{tuple(train.inputs.shape[1:])} and {tuple(test.inputs.shape[1:])} in {folder}",
            fix="write both files from the same source",
        )
    if size is not None:
        train, test = _resized(train, size), _resized(test, size)
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    normalize = measure_normalize(train.inputs)
    return Dataset(name, replace(train, normalize=normalize), replace(test, normalize=normalize), classes)


def _resized(examples: Examples, size: int) -> Examples:
    fit = Fit((examples.inputs.shape[1], size, size))
    parts = [fit(as_float(part)).mul_(255).round_().byte() for part in examples.inputs.split(AT_ONCE)]
    return replace(examples, inputs=torch.cat(parts))


def write_stored(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> Path:
    """Write one file of a data set; a crash in between leaves no half file under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{part}.npz"
    half = target.with_suffix(f".{os.getpid()}.part")
    with half.open("wb") as file:
        np.savez_compressed(file, images=images.astype(np.uint8), labels=labels.astype(np.int64))
        file.flush()
        os.fsync(file.fileno())
    half.replace(target)
    return target


def _read(file: Path, name: str) -> Examples:
    if not file.is_file():
        raise RekindleError(
            expected=f"the data set {name!r} in {file}",
            got="no such file",
            fix=f'fetch it once with `python -c "import rekindle as rk; rk.lab.data.download({name!r})"` (needs '
            f"network and pip install 'rekindle[hub]'), or set {VARIABLE} to a folder that has {name}/train.npz and "
            f"{name}/test.npz with images uint8 [N,H,W,C] and labels; digits, synthetic and mnist1d need neither; "
            f"for text, `rekindle data prepare {name} FILE ...`",
        )
    try:
        with np.load(file, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise _wrong(file, f"a file that cannot be read: {error}") from error
    if images.ndim != 4 or images.dtype != np.uint8 or labels.shape != images.shape[:1] or not len(labels):
        raise _wrong(file, f"images {images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}")
    if labels.dtype.kind not in "iu" or labels.min() < 0:
        raise _wrong(file, f"labels {labels.dtype} from {labels.min()}")
    inputs = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))  # [N, C, H, W]
    return Examples(inputs, torch.from_numpy(labels.astype(np.int64)))


def _wrong(file: Path, got: str) -> RekindleError:
    return RekindleError(
        expected=f"images uint8 [N,H,W,C] and as many whole, non-negative labels in {file}",
        got=got,
        fix="delete the file and fetch it again, or write it with numpy.savez(images=..., labels=...)",
    )
